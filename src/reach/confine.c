/* SPDX-License-Identifier: Apache-2.0 */

/* Gives up every right that HTTP calls do not need. Files: those that the name service and TLS
 * read. System calls: no exec, no new process, no listening socket. An attacker who takes over
 * this program can open connections as its user and read the keys of its targets. */

#include "reach/reach.h"

#include "base/os/landlock.h"
#include "base/os/process.h"
#include "seccomp/program.h"

#include <errno.h>
#include <fcntl.h>
#include <seccomp.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

int confine_identity(void)
{
    return process_give_up();
}

static const int allowed_calls[] = {SCMP_SYS(access), SCMP_SYS(brk), SCMP_SYS(clock_gettime),
    SCMP_SYS(clock_nanosleep), SCMP_SYS(close), SCMP_SYS(connect), SCMP_SYS(exit),
    SCMP_SYS(exit_group), SCMP_SYS(faccessat2), SCMP_SYS(fcntl), SCMP_SYS(fstat),
    SCMP_SYS(futex), SCMP_SYS(getdents64), SCMP_SYS(getegid), SCMP_SYS(geteuid),
    SCMP_SYS(getgid), SCMP_SYS(getpeername), SCMP_SYS(getpid), SCMP_SYS(getrandom),
    SCMP_SYS(getsockname), SCMP_SYS(getsockopt), SCMP_SYS(gettid), SCMP_SYS(gettimeofday),
    SCMP_SYS(getuid), SCMP_SYS(ioctl), SCMP_SYS(lseek), SCMP_SYS(madvise), SCMP_SYS(membarrier),
    SCMP_SYS(mremap), SCMP_SYS(munmap), SCMP_SYS(newfstatat), SCMP_SYS(openat), SCMP_SYS(pipe2),
    SCMP_SYS(poll), SCMP_SYS(ppoll), SCMP_SYS(pread64), SCMP_SYS(prlimit64), SCMP_SYS(read),
    SCMP_SYS(readlink), SCMP_SYS(recvfrom), SCMP_SYS(recvmmsg), SCMP_SYS(recvmsg),
    SCMP_SYS(restart_syscall), SCMP_SYS(rseq), SCMP_SYS(rt_sigaction), SCMP_SYS(rt_sigprocmask),
    SCMP_SYS(rt_sigreturn), SCMP_SYS(sched_yield), SCMP_SYS(sendmmsg), SCMP_SYS(sendmsg),
    SCMP_SYS(sendto), SCMP_SYS(set_robust_list), SCMP_SYS(setsockopt), SCMP_SYS(shutdown),
    SCMP_SYS(sigaltstack), SCMP_SYS(socketpair), SCMP_SYS(stat), SCMP_SYS(statx),
    SCMP_SYS(sysinfo), SCMP_SYS(tgkill), SCMP_SYS(uname), SCMP_SYS(write), SCMP_SYS(writev),
    SCMP_SYS(eventfd2), SCMP_SYS(open), SCMP_SYS(getppid)};

/* Memory becomes executable only when a library of the name service is mapped from a file.
 * clone makes threads only: libcurl resolves names in one. */
static int add_conditional(scmp_filter_ctx filter)
{
    const uint64_t write = 2; /* PROT_WRITE */
    const uint64_t families[] = {AF_INET, AF_INET6, AF_NETLINK, AF_UNIX};
    int r = program_filter_no_exec(filter);
    if (r == 0)
        r = seccomp_rule_add(
            filter, SCMP_ACT_ALLOW, SCMP_SYS(mmap), 1, SCMP_A2(SCMP_CMP_MASKED_EQ, write, 0));
    if (r == 0)
        r = program_filter_threads(filter);
    for (size_t i = 0; r == 0 && i < sizeof(families) / sizeof(families[0]); i++)
        r = seccomp_rule_add(
            filter, SCMP_ACT_ALLOW, SCMP_SYS(socket), 1, SCMP_A0(SCMP_CMP_EQ, families[i]));
    return r;
}

static int restrict_calls(void)
{
    return program_filter_load(
        allowed_calls, sizeof(allowed_calls) / sizeof(allowed_calls[0]), add_conditional);
}

int confine_rest(void)
{
    static const char *const readable[] = {
        "/etc", "/lib", "/lib64", "/usr/lib", "/usr/share", "/run/systemd/resolve", NULL};
    int r = landlock_leave(readable, LANDLOCK_READ, true);
#ifndef HERMES_SANITIZED /* sanitizers need more system calls */
    if (r == 0)
        r = restrict_calls();
#endif
    return r;
}
