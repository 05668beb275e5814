/* SPDX-License-Identifier: Apache-2.0 */

/* Starts and ends hermes-reach. The monitor keeps both ends of the socket for calls: calls that
 * come while there is no hermes-reach wait in it, and a new server has the same socket. */

#include "monitor/monitor.h"

#include "base/cleanup.h"
#include "base/os/process.h"
#include "proto/reach.h"

#include <errno.h>
#include <signal.h>
#include <sys/socket.h>

enum { STOP_MS = 1000 }; /* for the program to end by itself, before SIGKILL */

int reach_open(struct reach *r)
{
    return socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, r->calls) < 0 ? -errno : 0;
}

int reach_start(struct reach *r, const struct monitor *m)
{
    const struct child program = {.program = "hermes-reach",
        .no_environment = true,
        .own_session = true,
        .group = &m->reach_group,
        .uid = m->plan.reach_uid,
        .gid = m->plan.reach_gid,
        .may_gain = m->plan.reach_may_gain};
    const char mark = 'r';
    const int fds[REACH_FDS] = {
        [REACH_TABLE] = m->fds[PLAN_REACH], [REACH_CALLS] = r->calls[1]};
    cleanup_close int socket = -1;
    pid_t pid = child_start(&program, &socket);
    if (pid < 0)
        return pid;
    int error = fdpass_send_now(socket, &mark, sizeof(mark), fds, REACH_FDS);
    if (error < 0) {
        (void)kill(pid, SIGKILL);
        process_await(pid, STOP_MS);
        return error;
    }
    r->pid = pid;
    close_fd(&r->socket);
    r->socket = take_fd(&socket);
    return 0;
}

void reach_stop(struct reach *r)
{
    close_fd(&r->socket);
    if (r->pid > 0)
        process_await(r->pid, STOP_MS);
    r->pid = -1;
    close_fd(&r->calls[0]);
    close_fd(&r->calls[1]);
}
