/* SPDX-License-Identifier: Apache-2.0 */

/* A far shell that outlives its connection: it waits at a unix socket in a private directory,
 * in the background, and ends with everything it started when nobody has been connected for the
 * grace time. */

#include "bash/far.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/os/fs.h"
#include "base/os/sys.h"

enum { LISTEN_FD = 3, PIECE = 64 << 10, EXIT_GONE = 74, EXIT_AWAY = 75 };

static int address_of(const char *path, struct sockaddr_un *ret)
{
    *ret = (struct sockaddr_un){.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof(ret->sun_path))
        return -ENAMETOOLONG;
    memcpy(ret->sun_path, path, strlen(path));
    return 0;
}

/* The new process must hold none of our descriptors: an ssh server waits for the last holder of
 * its pipes. */
static _Noreturn void be_far(
    int listen_fd, const char *path, uint64_t grace_ms, const char *bash)
{
    static struct far far;
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    (void)setsid();
    for (int i = 0; i < 3; i++)
        (void)dup2(null, i);
    if (listen_fd != LISTEN_FD && dup3(listen_fd, LISTEN_FD, O_CLOEXEC) < 0)
        _exit(1);
    (void)sys_close_range(LISTEN_FD + 1, FAR_LAST_FD, 0);
    link_init(&far.link);
    far.link.listen_fd = LISTEN_FD;
    far.grace_ms = grace_ms;
    far.socket_path = path;
    far.bash = bash;
    far_run(&far);
}

int stay_start(const char *path, uint64_t grace_ms, const char *bash)
{
    struct sockaddr_un address;
    int r = address_of(path, &address);
    cleanup_close int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (r < 0 || fd < 0)
        return r < 0 ? r : -errno;
    mode_t before = umask(0177);
    bool is_bound = bind(fd, (struct sockaddr *)&address, sizeof(address)) == 0;
    r = is_bound ? 0 : -errno;
    (void)umask(before);
    if (r == 0 && listen(fd, 4) < 0)
        r = -errno;
    pid_t pid = r == 0 ? fork() : -1;
    if (pid == 0)
        be_far(fd, path, grace_ms, bash);
    if (r == 0 && pid < 0)
        r = -errno;
    if (r < 0 && is_bound)
        (void)unlink(path);
    return r;
}

/* Moves one piece. False at the end of `from`, or when `to` is closed. */
static bool pump(int from, int to)
{
    static char piece[PIECE];
    ssize_t n = read(from, piece, sizeof(piece));
    if (n < 0)
        return errno == EINTR || errno == EAGAIN;
    return n > 0 && fs_write_all(to, piece, (size_t)n) == 0;
}

int stay_attach(const char *path, const char *nonce)
{
    struct sockaddr_un address;
    int r = address_of(path, &address);
    cleanup_close int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    (void)signal(SIGPIPE, SIG_IGN);
    if (r == 0 && (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0))
        r = -errno;
    if (r == -ENOENT || r == -ECONNREFUSED) {
        (void)dprintf(1, "\001%s\002gone\n", nonce);
        return EXIT_GONE;
    }
    if (r < 0) { /* a later attempt may work */
        (void)dprintf(2, "hermes-shell: cannot join %s: %s\n", path, strerror(-r));
        return EXIT_AWAY;
    }
    (void)dprintf(1, "\001%s\002", nonce);
    for (;;) {
        struct pollfd fds[] = {{0, POLLIN, 0}, {fd, POLLIN, 0}};
        if (poll(fds, 2, -1) < 0)
            continue;
        if (fds[1].revents && !pump(fd, 1))
            return 0;
        if (fds[0].revents && !pump(0, fd))
            return 0;
    }
}
