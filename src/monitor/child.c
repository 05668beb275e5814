/* SPDX-License-Identifier: Apache-2.0 */

/* Starting a program, which is the only fork of the monitor, and ending it. */

#include "monitor/monitor.h"

#include "base/cleanup.h"
#include "base/log.h"
#include "base/os/process.h"
#include "proto/egress.h"
#include "proto/inject.h"
#include "proto/spawn.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

extern char **environ;

enum {
    NOT_EXECUTED = 125,
    STOP_MS = 1000, /* for a program to end by itself, before SIGKILL */
};

_Static_assert((int)HANDOVER_FD == (int)SPAWN_CONTROL_FD &&
                   (int)HANDOVER_FD == (int)EGRESS_FD && (int)HANDOVER_FD == (int)INJECT_FD,
    "every child has its socket there");

/* The programs without privilege start as their own users and in their own groups, so no
 * instruction of them runs as root. */
static int drop(const void *context)
{
    const struct child *child = context;
    int r = group_join(child->group);
    if (r < 0)
        log_event(LOG_WARN, "a program cannot enter its control group", "program",
            child->program, "reason", strerror(-r), (char *)NULL);
    if (child->own_session)
        (void)setsid();
    return child->may_gain ? process_change_user(child->uid, child->gid)
                           : process_drop(child->uid, child->gid);
}

/* Runs in the child. */
static int become(const struct child *child, int socket)
{
    char *argv[] = {(char *)child->program, (char *)child->argument, NULL};
    char *no_env[] = {NULL};
    const struct process_image image = {.program = child->program,
        .argv = argv,
        .env = child->no_environment ? no_env : environ,
        .socket = socket,
        .at = HANDOVER_FD,
        .before = child->group ? drop : NULL,
        .context = child};
    return process_become(&image);
}

pid_t child_start(const struct child *child, int *ret_socket)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return -errno;
    cleanup_close int ours = pair[0];
    cleanup_close int theirs = pair[1];
    pid_t pid = fork();
    if (pid == 0) {
        int error = become(child, theirs);
        log_event(LOG_ERROR, "cannot start a program; it belongs beside the hermes program",
            "program", child->program, "reason", strerror(-error), (char *)NULL);
        _exit(NOT_EXECUTED);
    }
    if (pid < 0)
        return -errno;
    *ret_socket = take_fd(&ours);
    return pid;
}

int child_keep(pid_t pid, int error, pid_t *ret_pid)
{
    *ret_pid = pid;
    if (error < 0) {
        (void)kill(pid, SIGKILL);
        child_stop(ret_pid);
    }
    return error;
}

void child_stop(pid_t *pid)
{
    if (*pid > 0)
        process_await(*pid, STOP_MS);
    *pid = -1;
}
