/* SPDX-License-Identifier: Apache-2.0 */

/* The near end of a terminal in a place: a process of its own between the server and the relay,
 * which carries the conversation to the far end (proto/terminal_link.h). The far end's words
 * are a stranger's. */

#include "backend/relay.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/os/fdpass.h"
#include "base/os/sys.h"
#include "proto/terminal.h"
#include "proto/terminal_link.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TALK_FD = 3, BYTES_FD, CONTROL_FD, END_FDS };
enum {
    LAST_MS = 10000, /* for the last bytes, when the session is gone */
    LOOK_MS = 1000,
};

static pid_t session; /* the process that serves it */

static void say(int fd, uint32_t kind, int32_t value)
{
    const struct terminal_word word = {kind, value};
    (void)send(fd, &word, sizeof(word), MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* The server's words: sizes. False when it has closed the terminal. */
static bool take_server(struct terminal_link *l)
{
    struct terminal_word word;
    ssize_t n = recv(CONTROL_FD, &word, sizeof(word), MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return true;
    if (n != (ssize_t)sizeof(word))
        return false;
    if (word.kind == TERMINAL_SIZE)
        terminal_link_say(l, TERMINAL_SIZED, (uint32_t)word.value);
    return true;
}

/* The server hears of the end of the shell after its last byte. When the session is gone,
 * nothing counts this process any more, so it does not wait for ever. */
static _Noreturn void finish(struct terminal_link *l, int status)
{
    uint64_t until_ms = clock_ms() + LAST_MS;
    while (l->bytes.len && clock_ms() < until_ms) {
        struct pollfd fds[] = {{BYTES_FD, POLLOUT, 0}, {CONTROL_FD, POLLRDHUP, 0}};
        if (poll(fds, 2, LOOK_MS) < 0 || fds[1].revents || fds[0].revents & (POLLERR | POLLHUP))
            break;
        if (getppid() == session)
            until_ms = clock_ms() + LAST_MS;
        l->out.len = 0; /* the far end needs no words any more */
        terminal_link_write(l);
    }
    say(CONTROL_FD, TERMINAL_ENDED, status);
    _exit(0);
}

static void serve(struct terminal_link *l)
{
    short bytes = terminal_link_bytes_events(l);
    struct pollfd fds[] = {
        {TALK_FD, terminal_link_talk_events(l), 0},
        {bytes ? BYTES_FD : -1, bytes, 0}, /* an end that cannot be read yet would never pass */
        {CONTROL_FD, POLLIN, 0},
    };
    char kind;
    uint32_t value;
    int r = 0;
    if (poll(fds, 3, -1) < 0)
        return;
    if (fds[2].revents && !take_server(l))
        _exit(0);
    if (fds[1].revents & (POLLIN | POLLHUP | POLLERR) && terminal_link_read_bytes(l) < 0)
        _exit(0);
    if (fds[0].revents & (POLLIN | POLLHUP | POLLERR))
        r = terminal_link_read_talk(l);
    while (r == 0 && (r = terminal_link_next(l, &kind, &value)) == 1) {
        if (kind == TERMINAL_STATUS)
            finish(l, (int)value);
        r = 0;
    }
    if (r < 0)
        finish(l, SIGKILL);
    terminal_link_write(l);
}

static _Noreturn void be_end(int talk_fd, int bytes_fd, int control_fd)
{
    static struct terminal_link link;
    int fds[] = {talk_fd, bytes_fd, control_fd};
    for (int i = 0; i < 3; i++) /* out of the way of their places */
        fds[i] = fcntl(fds[i], F_DUPFD_CLOEXEC, END_FDS);
    for (int i = 0; i < 3; i++) {
        if (fds[i] < 0 || dup2(fds[i], TALK_FD + i) < 0)
            _exit(1);
        (void)fcntl(TALK_FD + i, F_SETFL, O_NONBLOCK);
    }
    (void)sys_close_range(END_FDS, ~0u, 0);
    terminal_link_init(&link, TALK_FD, BYTES_FD);
    for (;;)
        serve(&link);
}

static pid_t *free_place(struct relay *r)
{
    pid_t *ret = NULL;
    for (int i = 0; i < RELAY_HELPERS; i++) {
        if (r->terminals[i] > 0 && waitpid(r->terminals[i], NULL, WNOHANG) != 0)
            r->terminals[i] = 0;
        if (r->terminals[i] == 0)
            ret = &r->terminals[i];
    }
    return ret;
}

static int start(struct relay *r, int control_fd)
{
    const struct terminal_word word = {.kind = TERMINAL_MASTER};
    int talk[2], bytes[2];
    pid_t *place = free_place(r);
    if (!place)
        return -EBUSY;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, talk) < 0)
        return -EAGAIN;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, bytes) < 0) {
        (void)close(talk[0]);
        (void)close(talk[1]);
        return -EAGAIN;
    }
    int error = relay_add_helper(r, talk[0], "terminal_open");
    session = getpid();
    pid_t pid = error < 0 ? -1 : fork();
    if (pid == 0)
        be_end(talk[1], bytes[1], control_fd);
    if (pid > 0) {
        *place = pid;
        error = fdpass_send_now(control_fd, &word, sizeof(word), &bytes[0], 1);
    } else if (error == 0) {
        error = -EAGAIN;
    }
    /* Without a process at its other end the conversation closes by itself. */
    (void)close(talk[1]);
    (void)close(bytes[0]);
    (void)close(bytes[1]);
    return error;
}

void relay_terminal(struct relay *r, int control_fd)
{
    int error = start(r, control_fd);
    if (error < 0)
        say(control_fd, TERMINAL_FAILED, error);
    (void)close(control_fd);
}
