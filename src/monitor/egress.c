/* SPDX-License-Identifier: Apache-2.0 */

/* Starts and ends hermes-egress. No program waits for it: until it runs, data of boxes queues
 * in their sockets, and nothing leaves a box. The monitor keeps no end of its socket, so it
 * ends when the spawner does. */

#include "monitor/monitor.h"

#include "base/cleanup.h"
#include "proto/egress.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

int egress_link(struct egress *e)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return -errno;
    e->link = pair[0];
    return pair[1];
}

/* Sends the ceiling, then gives our end of the socket away. The spawner may be busy or stopped;
 * the monitor never waits for it. */
static int hand_over(const struct egress *e, int socket, const int *fds, unsigned count)
{
    const struct egress_message ceiling = {.kind = EGRESS_CEILING};
    const char mark = EGRESS_SOCKET_MARK;
    int r = fdpass_send_now(socket, &ceiling, sizeof(ceiling), fds, count);
    return r < 0 ? r : fdpass_send_now(e->link, &mark, sizeof(mark), &socket, 1);
}

int egress_start(struct egress *e, const struct monitor *m, int inject_link)
{
    const struct child program = {.program = "hermes-egress",
        .no_environment = true,
        .own_session = true,
        .group = &m->egress_group,
        .uid = m->plan.egress_uid,
        .gid = m->plan.egress_gid};
    cleanup_close int socket = -1;
    pid_t pid = child_start(&program, &socket);
    if (pid < 0)
        return pid;
    const int fds[] = {m->fds[PLAN_CEILING], inject_link};
    int r = hand_over(e, socket, fds, inject_link < 0 ? 1 : 2);
    return child_keep(pid, r, &e->pid);
}

void egress_stop(struct egress *e)
{
    close_fd(&e->link);
    child_stop(&e->pid);
}
