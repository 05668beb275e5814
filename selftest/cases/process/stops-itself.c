// id: X-21
// name: Stops itself
// group: process
// priority: 1
// expect: time_limit
// expect-hit: wall
// expect-not-hit: cpu
// limits: wall_ms=2000
// control: none
// control-why: the limit is supervision, not a barrier; without it the run would not end
#include <signal.h>
#include <unistd.h>

int main(void)
{
    if (fork() == 0)
        for (;;)
            raise(SIGTSTP);
    kill(0, SIGSTOP);
    raise(SIGSTOP);
    for (;;)
        pause();
}
