/* SPDX-License-Identifier: Apache-2.0 */

/* Starts the shells of `local` sessions whose row permits sudo. The rest of hermes-places has
 * no_new_privs, which its children inherit, so a setuid program gains nothing there. This
 * process is forked before that. It has the same user, no capability, and reads one text from
 * the processes of sessions, nothing from the server. */

#include "places/places.h"

#include "backend/backend.h"
#include "base/os/fdpass.h"
#include "base/os/sys.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { REAP_MS = 1000 };

static void start(char *script, const int fds[BACKEND_ASK_FDS])
{
    char *argv[] = {(char *)"/bin/sh", (char *)"-c", script, NULL};
    const struct backend_program program = {.argv = argv};
    pid_t pid = fork();
    if (pid == 0)
        backend_become(&program, fds[0], fds[1], fds[2]);
    if (pid < 0)
        return; /* the asking process sees the end of its socket */
    int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    const char mark = 's';
    (void)fdpass_send_now(fds[BACKEND_ASK_REPLY], &mark, sizeof(mark), &pidfd, pidfd >= 0);
    if (pidfd >= 0)
        (void)close(pidfd);
}

/* False at the end of the socket. */
static bool take(int socket)
{
    char script[BACKEND_ASK_MAX + 1];
    int fds[BACKEND_ASK_FDS];
    unsigned count = 0;
    ssize_t n = fdpass_receive(socket, script, BACKEND_ASK_MAX, fds, BACKEND_ASK_FDS, &count);
    if (n <= 0)
        return n == -EMSGSIZE;
    script[n] = '\0';
    if (count == BACKEND_ASK_FDS)
        start(script, fds);
    for (unsigned i = 0; i < count; i++)
        (void)close(fds[i]);
    return true;
}

static _Noreturn void serve(int socket)
{
    for (;;) {
        struct pollfd ready = {socket, POLLIN, 0};
        int n = poll(&ready, 1, REAP_MS);
        while (waitpid(-1, NULL, WNOHANG) > 0)
            ;
        if (n > 0 && !take(socket))
            _exit(0);
    }
}

int starter_start(const struct place_table *table, int *ret_fd)
{
    int pair[2];
    *ret_fd = -1;
    if (!place_table_may_gain(table))
        return 0;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return -errno;
    pid_t parent = getpid();
    pid_t pid = fork();
    if (pid < 0)
        return -errno;
    if (pid == 0) {
        /* A `local` command has the same user and may have stopped this process: it must end
         * with hermes-places all the same. */
        if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != parent)
            _exit(1);
        if (dup2(pair[1], PLACES_FD) < 0 || sys_close_range(PLACES_FD + 1, ~0u, 0) < 0)
            _exit(1);
        (void)fcntl(PLACES_FD, F_SETFD, FD_CLOEXEC);
        /* Hosts, tokens and commands of the rows are not for the user of `local`. */
        if (munmap((void *)table, sizeof(*table) + table->shell_len) < 0)
            _exit(1);
        serve(PLACES_FD);
    }
    (void)close(pair[1]);
    *ret_fd = pair[0];
    return 0;
}
