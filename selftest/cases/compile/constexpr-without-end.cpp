// id: X-55
// name: constexpr without end
// group: compile
// priority: 2
// expect: compile_error
// control: none
// control-why: without the compile limits it would only eat the outer ones
template <int N> constexpr long fib()
{
    if constexpr (N < 2)
        return N;
    else
        return fib<N - 1>() + fib<N - 2>();
}
constexpr long slow(int n)
{
    return n < 2 ? n : slow(n - 1) + slow(n - 2) + fib<30>();
}
template <int N> struct Many {
    static constexpr long value = slow(24) + Many<N - 1>::value;
    Many<N - 1> left;
    Many<N + 1000> right;
};

int main()
{
    constexpr long x = slow(60);
    return static_cast<int>(x + Many<800>::value);
}
