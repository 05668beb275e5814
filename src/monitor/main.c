/* SPDX-License-Identifier: Apache-2.0 */

/* hermes-monitor: hermes-prepare becomes this program by exec, after it has read the settings.
 * So secrets are neither in its memory nor in its environment. */

#include "monitor/monitor.h"

#include "base/cleanup.h"
#include "base/log.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { EXIT_FAILED = 125 };

static bool receive_plan(struct monitor *m)
{
    enum handover_kind kind;
    int r = handover_receive(HANDOVER_FD, &kind, m->fds, &m->fd_count);
    (void)close(HANDOVER_FD);
    return r > 0 && kind == HANDOVER_PLAN && m->fd_count >= PLAN_LISTEN &&
           pread(m->fds[PLAN_FACTS], &m->plan, sizeof(m->plan), 0) ==
               (ssize_t)sizeof(m->plan) &&
           memchr(m->plan.log_level, '\0', sizeof(m->plan.log_level)) &&
           memchr(m->plan.unix_path, '\0', sizeof(m->plan.unix_path)) &&
           log_set_level(m->plan.log_level) == 0;
}

void stop_listening(struct monitor *m)
{
    while (m->fd_count > PLAN_LISTEN)
        close_fd(&m->fds[--m->fd_count]);
    if (m->plan.unix_path[0])
        (void)unlink(m->plan.unix_path);
    m->plan.unix_path[0] = '\0';
}

int main(void)
{
    static struct monitor monitor = {.server_group = GROUP_NONE,
        .egress_group = GROUP_NONE,
        .inject_group = GROUP_NONE,
        .outside_groups = {GROUP_NONE, GROUP_NONE}};
    (void)signal(SIGPIPE, SIG_IGN);
    if (!receive_plan(&monitor)) {
        (void)fprintf(
            stderr, "hermes-monitor: `hermes serve` starts this program; run that instead\n");
        return EXIT_FAILED;
    }
    int status = supervise(&monitor);
    stop_listening(&monitor);
    return status;
}
