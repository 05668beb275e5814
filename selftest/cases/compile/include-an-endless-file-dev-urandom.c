// id: O-49b
// name: Include an endless file, /dev/urandom
// group: compile
// priority: 1
// expect: compile_error
// control: none
// control-why: without the compile limits it would only eat the outer ones
// victim: yes
#include "/dev/urandom"
#include <stdio.h>
int main(void)
{
    puts("done");
}
