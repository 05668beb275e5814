// id: O-33
// name: Set the clock
// group: cpu
// priority: 2
// expect: ok
// control: seccomp
// files: probe.h
#include "probe.h"
#include <sys/time.h>
#include <sys/timex.h>
#include <time.h>

/* Bad pointers: the filter answers before they are read, the kernel would say EFAULT. */
int main(void)
{
    FILTERED("clock_settime", syscall(SYS_clock_settime, CLOCK_REALTIME, 1L));
    FILTERED("clock_settime TAI", syscall(SYS_clock_settime, CLOCK_TAI, 1L));
    FILTERED("settimeofday", syscall(SYS_settimeofday, 1L, 0L));
    FILTERED("settimeofday zone", syscall(SYS_settimeofday, 0L, 1L));
    if (!control()) {
        struct timex t = {.modes = ADJ_OFFSET}, u = {.modes = ADJ_TICK, .tick = 10000};
        FILTERED("adjtimex offset", adjtimex(&t));
        FILTERED("adjtimex tick", adjtimex(&u));
        FILTERED("clock_adjtime", clock_adjtime(CLOCK_REALTIME, &t));
    }
    return done();
}
