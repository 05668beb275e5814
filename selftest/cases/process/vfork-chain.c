// id: X-18
// name: vfork chain
// group: process
// priority: 2
// expect: ok
// expect-hit: processes
// control: pids
// needs-cgroup: yes
// files: probe.h
#include "probe.h"
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>

static int *depth;

/* Each process waits for its child, in shared memory: only the last one can run. */
static int deeper(void *arg)
{
    (void)arg;
    if (++*depth >= 90)
        return 0;
    char *stack = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (stack == MAP_FAILED || clone(deeper, stack + 65536, CLONE_VM | CLONE_VFORK | SIGCHLD, 0) < 0)
        blocked("vfork");
    return 0;
}

int main(void)
{
    static int count;
    depth = &count;
    deeper(NULL);
    printf("depth: %d\n", count);
    if (count > 64)
        breach("vfork", "beyond the limit of 64");
    return done();
}
