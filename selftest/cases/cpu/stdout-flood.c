// id: O-67
// name: Stdout flood
// group: cpu
// priority: 1
// expect: output_limit
// expect-hit: output
// expect-not-hit: wall
// control: none
// control-why: the cap is in the reader, not a barrier of the box
#include <string.h>
#include <unistd.h>

int main(void)
{
    static char buf[65536];
    memset(buf, 'x', sizeof buf);
    for (;;)
        if (write(1, buf, sizeof buf) < 0)
            return 1;
}
