// id: X-53
// name: A file that includes itself twice
// group: compile
// priority: 2
// expect: compile_error
// control: none
// control-why: without the compile limits it would only eat the outer ones
#include __FILE__
#include __FILE__
#include "/proc/self/cwd/main.c"
int main(void)
{
    return 0;
}
