// id: O-49a
// name: Include an endless file, /dev/zero
// group: compile
// priority: 1
// expect: compile_error
// control: none
// control-why: without the compile limits it would only eat the outer ones
// victim: yes
#include "/dev/zero"
#include <stdio.h>
int main(void)
{
    puts("done");
}
