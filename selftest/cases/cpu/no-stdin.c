// id: O-32
// name: No stdin
// group: cpu
// priority: 2
// expect: ok
// control: none
// control-why: about what the program is given, not about a barrier
#include <stdio.h>

int main(void)
{
    while (getchar() != EOF)
        ;
    puts("done");
}
