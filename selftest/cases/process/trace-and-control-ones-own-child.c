// id: X-16
// name: Trace and control one's own child
// group: process
// priority: 1
// expect: ok
// control: seccomp
// files: probe.h
#include "probe.h"
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/wait.h>

/* Another one of our processes is a fair target by uid; the filter refuses the calls all the same. */
int main(void)
{
    char buf[16];
    struct iovec local = {buf, sizeof buf}, remote = {buf, sizeof buf};
    pid_t child = fork();
    if (child == 0) {
        FILTERED("PTRACE_TRACEME", ptrace(PTRACE_TRACEME, 0, 0, 0));
        for (;;)
            pause();
    }
    usleep(50000);
    FILTERED("PTRACE_SEIZE", ptrace(PTRACE_SEIZE, child, 0, 0));
    FILTERED("PTRACE_ATTACH", ptrace(PTRACE_ATTACH, child, 0, 0));
    FILTERED("process_vm_readv", process_vm_readv(child, &local, 1, &remote, 1, 0));
    FILTERED("process_vm_writev", process_vm_writev(child, &local, 1, &remote, 1, 0));
    FILTERED("kcmp", syscall(SYS_kcmp, getpid(), child, 1, 0, 0));
    int pidfd = (int)syscall(SYS_pidfd_open, child, 0);
    FILTERED("pidfd_getfd", syscall(SYS_pidfd_getfd, pidfd, 1, 0));
    FILTERED("process_madvise", syscall(SYS_process_madvise, pidfd, &remote, 1, 20, 0));
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    return done();
}
