// id: O-20
// name: Signals to init, parent, everyone
// group: process
// priority: 1
// expect: signaled, ok
// expect-signal: SIGKILL
// control: uid,landlock
// victim: yes
// files: probe.h
#include "probe.h"
#include <signal.h>
#include <sys/wait.h>

/* With one id in the map (rootless without subuid) init has the payload's uid. The kernel still
 * keeps such signals from pid 1, so that they are not a breach there. */
static int single_uid(void)
{
    unsigned inside, outside, count, total = 0;
    FILE *f = fopen("/proc/self/uid_map", "r");
    while (f && fscanf(f, "%u %u %u", &inside, &outside, &count) == 3)
        total += count;
    if (f)
        fclose(f);
    return total == 1;
}

static void signal_to(const char *what, pid_t pid, int sig)
{
    if (kill(pid, control() ? 0 : sig) < 0)
        blocked(what);
    else if (single_uid())
        printf("blocked: %s (without effect)\n", what);
    else
        breach(what, "success");
}

int main(void)
{
    signal_to("kill(1,9)", 1, SIGKILL);
    signal_to("kill(1,SIGTERM)", 1, SIGTERM);
    signal_to("kill(1,SIGSTOP)", 1, SIGSTOP);
    signal_to("kill(1,SIGCHLD)", 1, SIGCHLD);
    signal_to("kill(getppid(),9)", getppid(), SIGKILL);
    fflush(stdout);
    /* Our child kills every process it can see: that must be only us. */
    if (fork() == 0) {
        kill(-1, control() ? 0 : SIGKILL);
        _exit(0);
    }
    wait(NULL);
    usleep(200000);
    return done();
}
