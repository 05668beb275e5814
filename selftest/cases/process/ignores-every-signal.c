// id: O-19
// name: Ignores every signal
// group: process
// priority: 1
// expect: time_limit
// limits: wall_ms=2000 cpu_ms=1000
// control: none
// control-why: without the time limit it would never end; the limit is supervision, not a barrier
#include <signal.h>

int main(void)
{
    sigset_t all;
    for (int s = 1; s < 65; s++)
        signal(s, SIG_IGN);
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, 0);
    for (volatile unsigned long i = 0;; i++)
        ;
}
