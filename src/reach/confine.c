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
        program_client_calls, program_client_call_count, add_conditional);
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
