// id: O-21
// name: Trace or read the supervisor
// group: process
// priority: 1
// expect: ok
// control: seccomp
// files: probe.h
#include "probe.h"
#include <fcntl.h>
#include <sys/ptrace.h>
#include <sys/uio.h>

int main(void)
{
    char buf[64] = "";
    struct iovec local = {buf, sizeof buf}, remote = {(void *)0x400000, sizeof buf};
    struct iovec own = {(void *)main, sizeof buf};

    if (!control()) /* would stop init */
        FILTERED("PTRACE_ATTACH 1", ptrace(PTRACE_ATTACH, 1, 0, 0));
    FILTERED("PTRACE_SEIZE 1", ptrace(PTRACE_SEIZE, 1, 0, 0));
    FILTERED("PTRACE_TRACEME", ptrace(PTRACE_TRACEME, 0, 0, 0));
    FILTERED("process_vm_readv 1", process_vm_readv(1, &local, 1, &remote, 1, 0));
    FILTERED("process_vm_readv self", process_vm_readv(getpid(), &local, 1, &own, 1, 0));
    FILTERED("process_vm_writev 1", process_vm_writev(1, &local, 1, &remote, 1, 0));
    int pidfd = (int)syscall(SYS_pidfd_open, 1, 0);
    printf("pidfd_open(1): %d\n", pidfd);
    for (int fd = 0; fd < 8; fd++)
        FILTERED("pidfd_getfd 1", syscall(SYS_pidfd_getfd, pidfd, fd, 0));
    REFUSED("/proc/1/mem", open("/proc/1/mem", O_RDWR), EACCES, EPERM, ENOENT, EROFS);
    REFUSED("/proc/1/maps", open("/proc/1/maps", O_RDONLY), EACCES, EPERM, ENOENT);
    REFUSED("/proc/1/fd/3", open("/proc/1/fd/3", O_RDONLY), EACCES, EPERM, ENOENT);
    REFUSED("/proc/1/fd/4", open("/proc/1/fd/4", O_RDWR), EACCES, EPERM, ENOENT, EROFS);
    return done();
}
