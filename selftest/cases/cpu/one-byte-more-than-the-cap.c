// id: X-43
// name: One byte more than the cap
// group: cpu
// priority: 2
// expect: output_limit
// expect-hit: output
// control: none
// control-why: the cap is in the reader, not a barrier of the box
#include <string.h>
#include <unistd.h>

/* The reader may need a moment to see the last byte: wait for it, but not for ever. */
int main(void)
{
    static char buf[65537];
    memset(buf, 'x', sizeof buf);
    for (size_t at = 0; at < sizeof buf;) {
        ssize_t n = write(1, buf + at, sizeof buf - at);
        if (n <= 0)
            return 1;
        at += (size_t)n;
    }
    sleep(1);
    return 0;
}
