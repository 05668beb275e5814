/* SPDX-License-Identifier: Apache-2.0 */

/* Programs of this machine that lead to a place. */

#include "backend/backend.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/os/fdpass.h"
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
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    STOP_MS = 2000,
    ASK_MS = 10000,
    PIECE = 64 << 10,
    LAST_MS = 300,      /* for its last words, after it has ended */
    LAST_MAX_MS = 3000, /* for all of them */
};

/* Only variables of the user: a place must not see the variables of the server. */
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

void backend_become(const struct backend_program *program, int in, int out, int err)
{
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

/* Our ends of three pipes; `theirs` are the standard files of the program. After a failure
 * the process ends. */
static int make_pipes(int theirs[3], struct backend_stream *ret)
{
    int to[2], from[2], said[2];
    if (pipe2(to, O_CLOEXEC) < 0 || pipe2(from, O_CLOEXEC) < 0 || pipe2(said, O_CLOEXEC) < 0)
        return -errno;
    theirs[0] = to[0];
    theirs[1] = from[1];
    theirs[2] = said[1];
    backend_stream_init(ret);
    ret->in_fd = from[0];
    ret->out_fd = to[1];
    ret->err_fd = said[0];
    (void)fcntl(ret->in_fd, F_SETFL, O_NONBLOCK);
    (void)fcntl(ret->out_fd, F_SETFL, O_NONBLOCK);
    (void)fcntl(ret->err_fd, F_SETFL, O_NONBLOCK);
    return 0;
}

static void close_all(int *fds, size_t count)
{
    for (size_t i = 0; i < count; i++)
        close_fd(&fds[i]);
}

int backend_fork(backend_run *run, const void *context, struct backend_stream *ret)
{
    int theirs[3] = {-1, -1, -1};
    int r = make_pipes(theirs, ret);
    if (r < 0)
        return r;
    ret->pid = fork();
    if (ret->pid == 0)
        run(context, fcntl(theirs[0], F_DUPFD, 10), fcntl(theirs[1], F_DUPFD, 10),
            fcntl(theirs[2], F_DUPFD, 10));
    r = ret->pid < 0 ? -errno : 0;
    close_all(theirs, 3);
    return r;
}

/* The starter has the user of `local` commands, which can stop it: nothing waits for it without
 * a bound. */
static int await_reply(const struct backend *b, int fd, int *ret_pidfd)
{
    struct pollfd ready[] = {{fd, POLLIN, 0}, {b->watch_fd, 0, 0}};
    char mark;
    unsigned count = 0;
    int n = poll(ready, 2, ASK_MS);
    if (n <= 0 || ready[1].revents)
        return n < 0 ? -errno : n == 0 ? -ETIMEDOUT : -ECANCELED;
    ssize_t len = fdpass_receive_now(fd, &mark, sizeof(mark), ret_pidfd, 1, &count);
    if (len > 0 && count == 1)
        return 0;
    *ret_pidfd = -1;
    return -EPIPE;
}

int backend_ask(const struct backend *b, const char *script, struct backend_stream *ret)
{
    int fds[BACKEND_ASK_FDS] = {-1, -1, -1, -1};
    int pair[2];
    int r = make_pipes(fds, ret);
    if (r < 0 || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return r < 0 ? r : -errno;
    cleanup_close int ours = pair[0];
    fds[BACKEND_ASK_REPLY] = pair[1];
    r = fdpass_send_now(b->starter_fd, script, strlen(script), fds, BACKEND_ASK_FDS);
    close_all(fds, BACKEND_ASK_FDS);
    return r < 0 ? r : await_reply(b, ours, &ret->pidfd);
}

static void run_program(const void *context, int in, int out, int err)
{
    backend_become(context, in, out, err);
}

int backend_start(const struct backend_program *program, struct backend_stream *ret)
{
    return backend_fork(run_program, program, ret);
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
        .in_fd = -1, .out_fd = -1, .err_fd = -1, .pid = -1, .pidfd = -1, .said_fd = -1};
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

/* Keeps the end of it. */
void backend_listen(struct backend_stream *s)
{
    char bytes[BACKEND_SAID];
    ssize_t n = read(s->err_fd, bytes, sizeof(bytes));
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
        close_fd(&s->err_fd);
    if (n <= 0)
        return;
    for (ssize_t i = 0; i < n; i++)
        bytes[i] = bytes[i] ? bytes[i] : ' ';
    size_t room = BACKEND_SAID - (size_t)n;
    size_t keep = s->said_len > room ? room : s->said_len;
    memmove(s->said, s->said + s->said_len - keep, keep);
    memcpy(s->said + keep, bytes, (size_t)n);
    s->said_len = keep + (size_t)n;
    s->said[s->said_len] = '\0';
}

const char *backend_last_line(struct backend_stream *s)
{
    uint64_t until_ms = clock_ms() + LAST_MAX_MS;
    close_fd(&s->said_fd); /* nothing more comes from us */
    while (s->err_fd >= 0 && clock_ms() < until_ms &&
           poll(&(struct pollfd){s->err_fd, POLLIN, 0}, 1, LAST_MS) > 0)
        backend_listen(s);
    while (s->said_len && (unsigned char)s->said[s->said_len - 1] <= ' ')
        s->said[--s->said_len] = '\0';
    const char *line = strrchr(s->said, '\n');
    return line ? line + 1 : s->said;
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
    struct pollfd ended = {s->pidfd, POLLIN, 0};
    if (s->pidfd >= 0 && poll(&ended, 1, STOP_MS) != 1) /* or a signal came */
        (void)syscall(SYS_pidfd_send_signal, s->pidfd, SIGKILL, NULL, 0);
    close_fd(&s->pidfd);
}
