// id: X-54
// name: Flood of diagnostics
// group: compile
// priority: 1
// expect: compile_error, ok
// control: none
// control-why: the cap is in the reader, not a barrier of the box
#define M _Pragma("message \"flood flood flood flood flood flood flood flood flood flood flood\"")
#define A1 M M M M M M M M M M
#define A2 A1 A1 A1 A1 A1 A1 A1 A1 A1 A1
#define A3 A2 A2 A2 A2 A2 A2 A2 A2 A2 A2
#define A4 A3 A3 A3 A3 A3 A3 A3 A3 A3 A3
A4
#include <stdio.h>
int main(void)
{
    puts("done");
}
