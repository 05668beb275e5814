/* SPDX-License-Identifier: Apache-2.0 */

/* Programs of this machine that lead to a place. */

#include "backend/backend.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/os/process.h"
#include "base/os/sys.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { STOP_MS = 2000, PIECE = 64 << 10 };

/* The user's own variables only: a place must not see those of the server. */
static void set_environment(void)
{
    const struct passwd *user = getpwuid(geteuid());
    const char *home = user && user->pw_dir[0] ? user->pw_dir : "/";
    (void)clearenv();
    (void)setenv("PATH", "/usr/local/bin:/usr/bin:/bin", 1);
    (void)setenv("HOME", home, 1);
    (void)setenv("LANG", "C.UTF-8", 1);
    (void)setenv("SHELL", "/bin/sh", 1);
    if (user) {
        (void)setenv("USER", user->pw_name, 1);
        (void)setenv("LOGNAME", user->pw_name, 1);
    }
}

static _Noreturn void become(const void *context, int in, int out, int err)
{
    const struct backend_program *program = context;
    char *const *argv = program->argv;
    const char *dir = program->dir;
    process_reset_signals();
    (void)setsid();
    if (program->is_bound)
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    set_environment();
    for (size_t i = 0; program->env && i < program->env->count; i++)
        (void)putenv(program->env->items[i]);
    const char *home = getenv("HOME");
    if (dir ? chdir(dir) < 0 : (chdir(home ? home : "/") < 0 && chdir("/") < 0)) {
        (void)dprintf(err, "cannot enter the directory %s: %m\n", dir ? dir : "/");
        _exit(126);
    }
    if (dup2(in, 0) < 0 || dup2(out, 1) < 0 || dup2(err, 2) < 0 ||
        sys_close_range(3, ~0u, 0) < 0)
        _exit(126);
    (void)execvp(argv[0], argv);
    (void)dprintf(2, "%s cannot be executed: %m\n", argv[0]);
    _exit(127);
}

int backend_fork(backend_run *run, const void *context, struct backend_stream *ret)
{
    int to[2], from[2], said[2];
    if (pipe2(to, O_CLOEXEC) < 0)
        return -errno;
    if (pipe2(from, O_CLOEXEC) < 0 || pipe2(said, O_CLOEXEC) < 0)
        return -errno; /* the process ends then */
    pid_t pid = fork();
    if (pid == 0) {
        for (int *fd = (int[]){to[0], from[1], said[1], -1}; *fd >= 0; fd++)
            (void)fcntl(*fd, F_SETFL, 0);
        run(context, fcntl(to[0], F_DUPFD, 10), fcntl(from[1], F_DUPFD, 10),
            fcntl(said[1], F_DUPFD, 10));
    }
    (void)close(to[0]);
    (void)close(from[1]);
    (void)close(said[1]);
    *ret = (struct backend_stream){
        .in_fd = from[0], .out_fd = to[1], .err_fd = said[0], .pid = pid, .said_fd = -1};
    (void)fcntl(ret->in_fd, F_SETFL, O_NONBLOCK);
    (void)fcntl(ret->out_fd, F_SETFL, O_NONBLOCK);
    (void)fcntl(ret->err_fd, F_SETFL, O_NONBLOCK);
    return pid < 0 ? -errno : 0;
}

int backend_start(const struct backend_program *program, struct backend_stream *ret)
{
    return backend_fork(become, program, ret);
}

int backend_spawn(char *const argv[], const char *dir, struct backend_stream *ret)
{
    return backend_start(&(struct backend_program){.argv = argv, .dir = dir}, ret);
}

enum place_error backend_spawned(struct backend *b, int r)
{
    return r < 0 ? backend_fail(b, PLACE_UNREACHABLE, "%s", strerror(-r)) : PLACE_FINE;
}

int backend_send(const struct backend *b, const struct backend_stream *s, const void *data,
    size_t len, uint64_t until_ms)
{
    const char *at = data;
    while (len > 0) {
        ssize_t n = write(s->out_fd, at, len);
        if (n < 0 && errno != EAGAIN && errno != EINTR)
            return -EPIPE;
        if (n > 0) {
            at += n;
            len -= (size_t)n;
            continue;
        }
        struct pollfd fds[] = {{s->out_fd, POLLOUT, 0}, {b->watch_fd, 0, 0}};
        uint64_t now = clock_ms();
        if (now >= until_ms)
            return -ETIMEDOUT;
        if (poll(fds, 2, (int)(until_ms - now)) > 0 && fds[1].revents)
            return -ECANCELED;
    }
    return 0;
}

void backend_stream_init(struct backend_stream *s)
{
    *s = (struct backend_stream){
        .in_fd = -1, .out_fd = -1, .err_fd = -1, .pid = -1, .said_fd = -1};
}

ssize_t backend_read(struct backend_stream *s, void *data, size_t size)
{
    char said[PIECE];
    size_t said_len = 0;
    ssize_t n = read(s->in_fd, data, s->is_framed && size > sizeof(said) ? sizeof(said) : size);
    if (n <= 0 || !s->is_framed)
        return n;
    n = wire_frames_take(&s->frames, data, (size_t)n, said, &said_len);
    if (said_len) { /* text that does not fit is dropped */
        ssize_t ignored = write(s->said_fd, said, said_len);
        (void)ignored;
    }
    if (n <= 0)
        errno = n < 0 ? EPROTO : EAGAIN;
    return n <= 0 ? -1 : n;
}

void backend_stream_close(struct backend_stream *s)
{
    close_fd(&s->said_fd);
    close_fd(&s->in_fd);
    close_fd(&s->out_fd);
    close_fd(&s->err_fd);
    if (s->pid > 0)
        process_await(s->pid, STOP_MS);
    s->pid = -1;
}
