/* SPDX-License-Identifier: Apache-2.0 */

/* Gives up every right that the loop does not need, before the first byte of a box is read.
 * An attacker who takes over egress can open sockets in the host's namespace as its user and
 * see the traffic, and nothing more: no file, no program, no other process. */

#include "egress/egress.h"

#include "base/os/fence.h"
#include "base/os/process.h"
#include "seccomp/program.h"

#include <seccomp.h>
#include <sys/socket.h>

int confine_identity(void)
{
    process_raise_descriptors();
    return process_give_up();
}

static const int allowed_calls[] = {SCMP_SYS(accept4), SCMP_SYS(brk), SCMP_SYS(clock_gettime),
    SCMP_SYS(close), SCMP_SYS(connect), SCMP_SYS(epoll_ctl), SCMP_SYS(epoll_pwait),
    SCMP_SYS(epoll_wait), SCMP_SYS(exit), SCMP_SYS(exit_group), SCMP_SYS(fcntl),
    SCMP_SYS(fstat), SCMP_SYS(futex), SCMP_SYS(getpeername), SCMP_SYS(getpid),
    SCMP_SYS(getrandom), SCMP_SYS(getsockname), SCMP_SYS(getsockopt), SCMP_SYS(gettid),
    SCMP_SYS(gettimeofday), SCMP_SYS(madvise), SCMP_SYS(mremap), SCMP_SYS(munmap),
    SCMP_SYS(newfstatat), SCMP_SYS(recvfrom), SCMP_SYS(recvmsg), SCMP_SYS(restart_syscall),
    SCMP_SYS(rt_sigaction), SCMP_SYS(rt_sigprocmask), SCMP_SYS(rt_sigreturn), SCMP_SYS(sendmsg),
    SCMP_SYS(sendto), SCMP_SYS(setsockopt), SCMP_SYS(shutdown), SCMP_SYS(socketpair),
    SCMP_SYS(tgkill), SCMP_SYS(write), SCMP_SYS(writev)};

/* Memory never becomes executable. Sockets are for TCP and UDP: another protocol must be
 * named. */
static int add_conditional(scmp_filter_ctx filter)
{
    const uint64_t type_mask = 15; /* beside SOCK_NONBLOCK and SOCK_CLOEXEC */
    int r = program_filter_no_exec(filter);
    const uint64_t families[] = {AF_INET, AF_INET6};
    const uint64_t types[] = {SOCK_STREAM, SOCK_DGRAM};
    for (int i = 0; r == 0 && i < 4; i++)
        r = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(socket), 3,
            SCMP_A0(SCMP_CMP_EQ, families[i / 2]),
            SCMP_A1(SCMP_CMP_MASKED_EQ, type_mask, types[i % 2]), SCMP_A2(SCMP_CMP_EQ, 0));
    return r;
}

static int restrict_calls(void)
{
    return program_filter_load(
        allowed_calls, sizeof(allowed_calls) / sizeof(allowed_calls[0]), add_conditional);
}

int confine_rest(void)
{
    int r = fence_files(FENCE_BIND);
#ifndef HERMES_SANITIZED /* sanitizers need more system calls */
    if (r == 0)
        r = restrict_calls();
#endif
    return r;
}
