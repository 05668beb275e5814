// id: O-51a
// name: Giant object
// group: compile
// priority: 2
// expect: compile_error
// control: none
// control-why: without the compile limits it would only eat the outer ones
int a[1 << 29] = {1};

int main(void)
{
    return a[0];
}
