// id: X-42
// name: Output of exactly the cap
// group: cpu
// priority: 1
// expect: ok
// expect-not-hit: output
// control: none
// control-why: about the truth of the verdict, not about a barrier
#include <string.h>
#include <unistd.h>

/* 64 KiB on each stream, no byte more; stdout ends in the line `done`. */
int main(void)
{
    static char buf[65536];
    memset(buf, 'x', sizeof buf);
    for (int fd = 2; fd > 0; fd--) {
        if (fd == 1)
            memcpy(buf + sizeof buf - 6, "\ndone\n", 6);
        for (size_t at = 0; at < sizeof buf;) {
            ssize_t n = write(fd, buf + at, sizeof buf - at);
            if (n <= 0)
                return 1;
            at += (size_t)n;
        }
    }
    return 0;
}
