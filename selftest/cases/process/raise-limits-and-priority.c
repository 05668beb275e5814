// id: O-23
// name: Raise limits and priority
// group: process
// priority: 2
// expect: ok
// control: rlimits
// files: probe.h
#include "probe.h"
#include <sched.h>
#include <sys/resource.h>

static void raise_limit(const char *what, int resource)
{
    struct rlimit was, now, all = {RLIM_INFINITY, RLIM_INFINITY};
    if (getrlimit(resource, &was) != 0)
        return;
    FILTERED(what, setrlimit(resource, &all));
    FILTERED(what, prlimit(0, resource, &all, NULL));
    if (was.rlim_max != RLIM_INFINITY) {
        struct rlimit more = {was.rlim_cur, was.rlim_max + 1};
        FILTERED(what, setrlimit(resource, &more));
    }
    if (getrlimit(resource, &now) != 0 || memcmp(&was, &now, sizeof was) != 0)
        breach(what, "changed");
}

int main(void)
{
    raise_limit("RLIMIT_NPROC", RLIMIT_NPROC);
    raise_limit("RLIMIT_NOFILE", RLIMIT_NOFILE);
    raise_limit("RLIMIT_STACK", RLIMIT_STACK);
    raise_limit("RLIMIT_CORE", RLIMIT_CORE);
    raise_limit("RLIMIT_FSIZE", RLIMIT_FSIZE);
    raise_limit("RLIMIT_MEMLOCK", RLIMIT_MEMLOCK);
    raise_limit("RLIMIT_CPU", RLIMIT_CPU);
    raise_limit("RLIMIT_MSGQUEUE", RLIMIT_MSGQUEUE);
    raise_limit("RLIMIT_SIGPENDING", RLIMIT_SIGPENDING);
    raise_limit("RLIMIT_NICE", RLIMIT_NICE);
    raise_limit("RLIMIT_RTPRIO", RLIMIT_RTPRIO);

    struct rlimit lower = {0, 0};
    REFUSED("prlimit of init", prlimit(1, RLIMIT_NOFILE, &lower, NULL), EPERM, ENOSYS, ESRCH);
    struct sched_param param = {.sched_priority = 1};
    FILTERED("SCHED_FIFO", sched_setscheduler(0, SCHED_FIFO, &param));
    FILTERED("SCHED_RR", sched_setscheduler(0, SCHED_RR, &param));
    REFUSED("setpriority", setpriority(PRIO_PROCESS, 0, -20), EPERM, EACCES, ENOSYS);
    FILTERED("ioprio_set", syscall(SYS_ioprio_set, 1, 0, 1 << 13));
    return done();
}
