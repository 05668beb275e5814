// id: X-22
// name: Closes its streams, then spins
// group: process
// priority: 1
// expect: time_limit
// expect-hit: cpu
// limits: cpu_ms=1000
// control: none
// control-why: the limit is supervision, not a barrier; without it the run would not end
#include <unistd.h>

int main(void)
{
    for (int fd = 0; fd < 1024; fd++)
        close(fd);
    for (volatile unsigned long i = 0;; i++)
        ;
}
