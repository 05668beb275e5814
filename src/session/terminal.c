/* SPDX-License-Identifier: Apache-2.0 */

/* See terminal.h. */

#include "session/terminal.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/os/fdpass.h"
#include "proto/terminal.h"
#include "run/package.h"
#include "run/plan.h"
#include "session/host.h"
#include "state/state.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    OPEN_MS = 5000,               /* for the terminal from the box */
    RETRY_S = 5,                  /* hint for a refused client */
    CONNECTIONS_PER_TERMINAL = 4, /* terminals may use a quarter of the connections */
    /* Device number of /dev/ptmx. */
    PTMX_MAJOR = 5,
    PTMX_MINOR = 2,
    STATUS_KILLED = 137, /* 128 + SIGKILL */
};

/* Writes the package of the shell: the environment of the interpreter, with variables for a
 * shell at a terminal. The caller's variables come last. */
static int write_package(struct session *s, int *ret_fd, struct err *err)
{
    static const char *const more[] = {
        "TERM=xterm-256color", "PS1=\\u@\\h:\\w\\$ ", "HISTFILE=/tmp/.bash_history"};
    CLEANUP(strv_done) struct strv argv = {0};
    CLEANUP(strv_done) struct strv env = {0};
    strv_add(&argv, "/bin/bash");
    strv_add(&argv, "-i");
    plan_environment(&s->spec.runtime->run, &s->spec.limits, &env);
    /* A rollback exchanges the image, and frees the old one. */
    (void)pthread_mutex_lock(&s->lock);
    if (s->spec.image)
        (void)plan_image(&s->spec.runtime->run, s->spec.image, 0, NULL, &env);
    (void)pthread_mutex_unlock(&s->lock);
    for (size_t i = 0; i < sizeof(more) / sizeof(more[0]); i++)
        plan_set_env(&env, more[i]);
    for (size_t i = 0; i < s->env.count; i++)
        plan_set_env(&env, s->env.items[i]);
    return package_write(&(struct package_spec){.argv = &argv, .env = &env}, ret_fd, err);
}

/* Counts a terminal in the session, whose lock is held, and in the server. Other sessions
 * change the server's count at the same time. */
static int take_place(struct terminal *t, struct err *err)
{
    struct sessions *all = t->s->all;
    uint64_t max = all->state->config.session_terminals;
    if (t->s->terminals >= max)
        return err_set(err, ERR_BUSY, EAGAIN,
            "the session has %llu terminals already; close one first", (unsigned long long)max);
    if (atomic_fetch_add(&all->terminals, 1) >= all->state->terminals_max) {
        (void)atomic_fetch_sub(&all->terminals, 1);
        return err_set(
            err, ERR_BUSY, EAGAIN, "all terminals of the server are in use; try again later");
    }
    t->s->terminals++;
    t->is_counted = true;
    return 0;
}

/* Sends COMMAND_TERMINAL. session_terminal_close() takes back the count of take_place(). */
static int ask(struct terminal *t, int package_fd, struct err *err)
{
    const struct spawn_command command = {.kind = COMMAND_TERMINAL};
    struct session *s = t->s;
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return err_set(err, ERR_UNAVAILABLE, errno,
            "the server has no descriptor left for a terminal; try again later");
    t->socket = pair[0];
    const int fds[] = {pair[1], package_fd}; /* a place needs no package */
    (void)pthread_mutex_lock(&s->lock);
    int r = session_reach(s, false, err);
    if (r == 0)
        r = take_place(t, err);
    if (r == 0 && (r = fdpass_send(s->box.socket, &command, sizeof(command), fds,
                       package_fd < 0 ? 1 : 2)) < 0)
        (void)err_set(err, ERR_UNAVAILABLE, -r,
            "the box of the session cannot be reached; try again, or reset the session");
    if (r == 0)
        s->used_ms = clock_ms();
    (void)pthread_mutex_unlock(&s->lock);
    (void)close(pair[1]);
    return r;
}

/* The master end of a terminal in a box; on a backend, a stream socket. */
static bool is_master(const struct terminal *t)
{
    struct stat st;
    if (t->master < 0 || fstat(t->master, &st) < 0)
        return false;
    if (t->s->spec.place)
        return S_ISSOCK(st.st_mode);
    return S_ISCHR(st.st_mode) && st.st_rdev == makedev(PTMX_MAJOR, PTMX_MINOR);
}

/* Waits for the master end. Our own code in the box sends it before the shell exists, but it
 * is checked nevertheless. */
static int receive(struct terminal *t)
{
    struct terminal_word word = {0};
    struct pollfd ready = {.fd = t->socket, .events = POLLIN};
    unsigned count = 0;
    int r = poll(&ready, 1, OPEN_MS);
    if (r != 1)
        return -ETIMEDOUT;
    ssize_t n = fdpass_receive(t->socket, &word, sizeof(word), &t->master, 1, &count);
    if (count == 0)
        t->master = -1;
    if (n != (ssize_t)sizeof(word))
        return -EPIPE;
    if (word.kind == TERMINAL_FAILED)
        return word.value < 0 ? word.value : -EBADMSG;
    if (word.kind != TERMINAL_MASTER || !is_master(t) ||
        fcntl(t->master, F_SETFL, O_RDWR | O_NONBLOCK) < 0)
        return -EBADMSG;
    return 0;
}

static const struct {
    int error;
    enum err_code code;
    const char *text;
} errors[] = {
    {EUSERS, ERR_CONFLICT,
        "the box has no process to spare for a shell: its limit of processes is used up"},
    {EAGAIN, ERR_CONFLICT,
        "there is no process to spare for a shell: the limit of the box, or that of all boxes "
        "together, is used up"},
    {EBUSY, ERR_CONFLICT,
        "the session has as many terminals and transfers of files under way as its backend "
        "takes; close one"},
    {ENOSPC, ERR_CONFLICT, "the session's code holds all terminals that its box may have"},
    {ENOMEM, ERR_CONFLICT, "the box has no memory for a shell"},
    {ETIMEDOUT, ERR_UNAVAILABLE,
        "the box did not answer in time; its code may keep it busy: try again, or reset the "
        "session"},
};

static int refused(int error, struct err *err)
{
    for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
        if (errors[i].error == -error)
            return err_set(err, errors[i].code, -error, "%s", errors[i].text);
    }
    return err_set(err, ERR_CONFLICT, -error,
        "the box could not start a shell: it was ended or reset, or has reached a limit");
}

int session_terminal_open(
    struct session *s, struct terminal_size size, struct terminal **ret, struct err *err)
{
    const char go = TERMINAL_GO;
    cleanup_close int package = -1;
    const struct state *state = s->all->state;
    if (state->terminals_max == 0)
        return err_set(err, ERR_UNSUPPORTED, EOPNOTSUPP,
            "this server has no terminals; use exec, or ask its operator (session_terminals)");
    int r = host_approve_access(s, HOST_TERMINAL, "", -1, err);
    if (r == 0)
        r = admit_check(state->admit, s->owner_index, err);
    if (r < 0 || (!s->spec.place && (r = write_package(s, &package, err)) < 0))
        return r;
    struct terminal *t = xcalloc(1, sizeof(*t));
    *t = (struct terminal){.s = session_ref(s), .master = -1, .socket = -1};
    r = ask(t, package, err);
    if (r == 0 && (r = receive(t)) < 0)
        r = refused(r, err);
    if (r < 0) {
        (void)err_retry(err, r, RETRY_S);
        session_terminal_close(t);
        return r;
    }
    terminal_resize(t, size);
    if (!s->spec.place)
        (void)send(t->socket, &go, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
    *ret = t;
    return 0;
}

void session_terminal_close(struct terminal *t)
{
    if (!t)
        return;
    struct session *s = t->s;
    close_fd(&t->master);
    close_fd(&t->socket);
    if (t->is_counted) {
        (void)pthread_mutex_lock(&s->lock);
        if (--s->terminals == 0 && s->state == SESSION_IDLE)
            session_box_ask_usage(&s->box, true);
        (void)atomic_fetch_sub(&s->all->terminals, 1);
        (void)pthread_mutex_unlock(&s->lock);
    }
    session_unref(s);
    free(t);
}

void terminal_resize(const struct terminal *t, struct terminal_size size)
{
    const struct winsize now = {
        .ws_row = (unsigned short)size.rows, .ws_col = (unsigned short)size.cols};
    const struct terminal_word word = {
        TERMINAL_SIZE, (int32_t)(size.rows << 16 | (size.cols & 0xffff))};
    if (t->s->spec.place)
        (void)send(t->socket, &word, sizeof(word), MSG_NOSIGNAL | MSG_DONTWAIT);
    else
        (void)ioctl(t->master, TIOCSWINSZ, &now);
}

bool terminal_has_ended(const struct terminal *t, int *ret_exit_code)
{
    struct terminal_word word;
    ssize_t n = recv(t->socket, &word, sizeof(word), MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    *ret_exit_code = STATUS_KILLED;
    if (n == (ssize_t)sizeof(word) && word.kind == TERMINAL_FAILED)
        *ret_exit_code = 127; /* the shell could not be executed */
    if (n == (ssize_t)sizeof(word) && word.kind == TERMINAL_ENDED)
        *ret_exit_code =
            WIFEXITED(word.value) ? WEXITSTATUS(word.value) : 128 + WTERMSIG(word.value);
    return true;
}

uint64_t terminals_max(const struct config *config, uint64_t connections)
{
    uint64_t asked = config->max_sessions * config->session_terminals;
    uint64_t room = connections / CONNECTIONS_PER_TERMINAL;
    return asked < room ? asked : room;
}

unsigned terminals_count(struct sessions *all)
{
    return all->terminals;
}
