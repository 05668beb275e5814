/* SPDX-License-Identifier: Apache-2.0 */

/* Starts and ends hermes-inject, as egress.c does with hermes-egress. The monitor keeps no end
 * of its socket, so it ends when hermes-egress does. The monitor hands over a descriptor of the
 * values and never reads them. */

#include "monitor/monitor.h"

#include "base/cleanup.h"
#include "proto/inject.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

int inject_link(struct inject *i)
{
    int pair[2];
    close_fd(&i->link);
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return -errno;
    i->link = pair[0];
    return pair[1];
}

static int hand_over(const struct inject *i, int socket, int secrets_fd)
{
    const struct inject_message secrets = {.kind = INJECT_SECRETS};
    const char mark = INJECT_SOCKET_MARK;
    int r = fdpass_send_now(socket, &secrets, sizeof(secrets), &secrets_fd, 1);
    return r < 0 ? r : fdpass_send_now(i->link, &mark, sizeof(mark), &socket, 1);
}

int inject_start(struct inject *i, const struct monitor *m)
{
    const struct child program = {.program = "hermes-inject",
        .no_environment = true,
        .own_session = true,
        .group = &m->inject_group,
        .uid = m->plan.inject_uid,
        .gid = m->plan.inject_gid};
    cleanup_close int socket = -1;
    pid_t pid = child_start(&program, &socket);
    if (pid < 0)
        return pid;
    return child_keep(pid, hand_over(i, socket, m->fds[PLAN_SECRETS]), &i->pid);
}

void inject_stop(struct inject *i)
{
    close_fd(&i->link);
    child_stop(&i->pid);
}
