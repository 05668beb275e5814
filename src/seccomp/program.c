/* SPDX-License-Identifier: Apache-2.0 */

/* See program.h. */

#include "seccomp/program.h"

#include <errno.h>
#include <linux/sched.h>
#include <sys/mman.h>

const int program_client_calls[] = {SCMP_SYS(access), SCMP_SYS(brk), SCMP_SYS(clock_gettime),
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
const size_t program_client_call_count =
    sizeof(program_client_calls) / sizeof(program_client_calls[0]);

int program_filter_no_exec(scmp_filter_ctx filter)
{
    const int calls[] = {SCMP_SYS(mprotect), SCMP_SYS(mmap)};
    int r = 0;
    for (int i = 0; r == 0 && i < 2; i++)
        r = seccomp_rule_add(
            filter, SCMP_ACT_ALLOW, calls[i], 1, SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0));
    return r;
}

int program_filter_threads(scmp_filter_ctx filter)
{
    int r = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(clone), 1,
        SCMP_A0(SCMP_CMP_MASKED_EQ, CLONE_THREAD, CLONE_THREAD));
    return r < 0 ? r : seccomp_rule_add(filter, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0);
}

int program_filter_load(const int *calls, size_t count, program_filter_rules *rules)
{
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ERRNO(EPERM));
    if (!filter)
        return -ENOMEM;
    int r = rules(filter);
    for (size_t i = 0; r == 0 && i < count; i++) {
        if (calls[i] >= 0)
            r = seccomp_rule_add(filter, SCMP_ACT_ALLOW, calls[i], 0);
    }
    if (r == 0)
        r = seccomp_attr_set(filter, SCMP_FLTATR_CTL_OPTIMIZE, 2);
    if (r == 0)
        r = seccomp_load(filter);
    seccomp_release(filter);
    return r;
}
