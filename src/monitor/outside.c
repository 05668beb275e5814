/* SPDX-License-Identifier: Apache-2.0 */

/* Starts and ends the programs that call outside. The monitor keeps both ends of the socket for
 * calls: calls that come while a program does not run wait in it, and a new server has the same
 * socket. */

#include "monitor/monitor.h"

#include "base/cleanup.h"
#include "proto/place.h"
#include "proto/reach.h"

#include <errno.h>
#include <sys/socket.h>

_Static_assert((int)HANDOVER_FD == (int)REACH_FD && (int)HANDOVER_FD == (int)PLACES_FD &&
                   (int)REACH_TABLE == (int)PLACES_TABLE &&
                   (int)REACH_CALLS == (int)PLACES_REQUESTS,
    "both programs are given the same");

const char *outside_name(enum outside which)
{
    static const char *const names[] = {
        [OUTSIDE_REACH] = "hermes-reach", [OUTSIDE_PLACES] = "hermes-places"};
    return names[which];
}

int outside_open(struct outside_program *o)
{
    return socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, o->calls) < 0 ? -errno : 0;
}

int outside_start(struct outside_program *o, const struct monitor *m, enum outside which)
{
    const struct handover_outside *plan = &m->plan.outside[which];
    const struct child program = {.program = outside_name(which),
        .no_environment = true,
        .own_session = true,
        .group = &m->outside_groups[which],
        .uid = plan->uid,
        .gid = plan->gid,
        .may_gain = plan->may_gain};
    const char mark = 'r';
    const int fds[REACH_FDS] = {
        [REACH_TABLE] = m->fds[PLAN_REACH + which], [REACH_CALLS] = o->calls[1]};
    cleanup_close int socket = -1;
    pid_t pid = child_start(&program, &socket);
    if (pid < 0)
        return pid;
    int error =
        child_keep(pid, fdpass_send_now(socket, &mark, sizeof(mark), fds, REACH_FDS), &o->pid);
    if (error < 0)
        return error;
    close_fd(&o->socket);
    o->socket = take_fd(&socket);
    return 0;
}

void outside_stop(struct outside_program *o)
{
    close_fd(&o->socket);
    child_stop(&o->pid);
    close_fd(&o->calls[0]);
    close_fd(&o->calls[1]);
}
