// id: O-49c
// name: Include an endless file, /dev/stdin
// group: compile
// priority: 1
// expect: compile_error, ok
// control: none
// control-why: without the compile limits it would only eat the outer ones
// victim: yes
#include "/dev/stdin"
#include <stdio.h>
int main(void)
{
    puts("done");
}
