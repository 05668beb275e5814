/* SPDX-License-Identifier: Apache-2.0 */

/* Starting a program: the only fork of the monitor. */

#include "monitor/monitor.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/process.h"
#include "proto/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

extern char **environ;

enum { NOT_EXECUTED = 125 };

_Static_assert((int)HANDOVER_FD == (int)SPAWN_CONTROL_FD, "every child has its socket there");

/* The server starts as its own user and in its own group, so no instruction of it runs as
 * root. */
static int drop_to_server(const struct monitor *m)
{
    int r = memory_group_join(&m->memory_group);
    if (r < 0)
        log_event(LOG_WARN, "the server cannot enter its control group", "reason", strerror(-r),
            (char *)NULL);
    return process_drop(m->plan.uid, m->plan.gid);
}

/* Runs in the child; returns the errno of the failure. The order matters: the memory group has
 * a descriptor, which may be HANDOVER_FD, and the program is opened as root. */
static int become(const struct monitor *m, const struct child *child, int socket)
{
    char *argv[] = {(char *)child->program, (char *)child->argument, NULL};
    char *no_env[] = {NULL};
    char **env = child->no_environment ? no_env : environ;
    cleanup_free char *path = fs_beside_self(child->program);
    cleanup_close int program = path ? open(path, O_PATH | O_CLOEXEC) : -1;
    int r = program < 0 ? -errno : 0;
    if (r == 0 && (program = fcntl(program, F_DUPFD_CLOEXEC, HANDOVER_FD + 1)) < 0)
        r = -errno;
    if (r == 0 && child->is_server)
        r = drop_to_server(m);
    if (r < 0)
        return -r;
    process_reset_signals();
    /* dup2 onto itself would keep close-on-exec. */
    r = socket == HANDOVER_FD ? fcntl(socket, F_SETFD, 0) : dup2(socket, HANDOVER_FD);
    if (r < 0)
        return errno;
    (void)execve(path, argv, env);
    /* The server's user may not be allowed to walk to the program (a build below /root). */
    if (errno == EACCES)
        (void)syscall(SYS_execveat, program, "", argv, env, AT_EMPTY_PATH);
    return errno;
}

pid_t child_start(const struct monitor *m, const struct child *child, int *ret_socket)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return -errno;
    cleanup_close int ours = pair[0];
    cleanup_close int theirs = pair[1];
    pid_t pid = fork();
    if (pid == 0) {
        int error = become(m, child, theirs);
        log_event(LOG_ERROR, "cannot start a program; it belongs beside the hermes program",
            "program", child->program, "reason", strerror(error), (char *)NULL);
        _exit(NOT_EXECUTED);
    }
    if (pid < 0)
        return -errno;
    *ret_socket = take_fd(&ours);
    return pid;
}
