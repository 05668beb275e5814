/* SPDX-License-Identifier: Apache-2.0 */

/* Gives up every right that the loop does not need, before the first byte of a box is read. An
 * attacker who takes over inject has the values and the connections that it was given, and
 * nothing more: it can open no socket, file or program. */

#include "inject/inject.h"

#include "base/os/fence.h"
#include "base/os/process.h"
#include "seccomp/program.h"

#include <errno.h>
#include <seccomp.h>
#include <sys/resource.h>

int confine_identity(void)
{
    const struct rlimit none = {0, 0};
    process_raise_descriptors();
    return setrlimit(RLIMIT_CORE, &none) < 0 ? -errno : process_give_up();
}

static const int allowed_calls[] = {SCMP_SYS(brk), SCMP_SYS(clock_gettime), SCMP_SYS(close),
    SCMP_SYS(epoll_ctl), SCMP_SYS(epoll_pwait), SCMP_SYS(epoll_wait), SCMP_SYS(exit),
    SCMP_SYS(exit_group), SCMP_SYS(fcntl), SCMP_SYS(fstat), SCMP_SYS(futex), SCMP_SYS(getpid),
    SCMP_SYS(getrandom), SCMP_SYS(getrusage), SCMP_SYS(getsockopt), SCMP_SYS(gettid),
    SCMP_SYS(gettimeofday), SCMP_SYS(madvise), SCMP_SYS(mremap), SCMP_SYS(munmap),
    SCMP_SYS(newfstatat), SCMP_SYS(recvfrom), SCMP_SYS(recvmsg), SCMP_SYS(restart_syscall),
    SCMP_SYS(rt_sigaction), SCMP_SYS(rt_sigprocmask), SCMP_SYS(rt_sigreturn), SCMP_SYS(sendmsg),
    SCMP_SYS(sendto), SCMP_SYS(setsockopt), SCMP_SYS(shutdown), SCMP_SYS(tgkill),
    SCMP_SYS(time), SCMP_SYS(write), SCMP_SYS(writev)};

static int restrict_calls(void)
{
    return program_filter_load(allowed_calls, sizeof(allowed_calls) / sizeof(allowed_calls[0]),
        program_filter_no_exec);
}

int confine_rest(void)
{
    int r = fence_files(FENCE_BIND | FENCE_CONNECT);
#ifndef HERMES_SANITIZED /* sanitizers need more system calls */
    if (r == 0)
        r = restrict_calls();
#endif
    return r;
}
