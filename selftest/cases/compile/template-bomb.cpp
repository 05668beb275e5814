// id: O-52
// name: Template bomb
// group: compile
// priority: 1
// expect: compile_error
// control: none
// control-why: without the compile limits it would only eat the outer ones
// victim: yes
template <class T, int N> struct B {
    typedef typename B<B<T, N - 1>, N - 1>::t t;
};
B<int, 60>::t x;

int main()
{
    return 0;
}
