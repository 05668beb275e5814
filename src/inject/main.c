/* SPDX-License-Identifier: Apache-2.0 */

/* hermes-inject: puts secrets into requests of boxes, outside of the boxes. Started by the
 * monitor with a socket at INJECT_FD (proto/inject.h). It reads the secrets, confines itself,
 * and serves connections until its socket closes. */

#include "inject/inject.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/os/fdpass.h"
#include "base/os/sys.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

enum {
    EVENTS = 128,
    SWEEP_MS = 500,
    MESSAGES = 64,
    CONNS_MAX = 1024, /* at about 300 KiB each: the control group has 512 MiB by default */
};

static int fail(const char *what, int error)
{
    log_event(LOG_ERROR, what, "error", strerror(-error), (char *)NULL);
    return 1;
}

static int receive_table(struct inject *inject)
{
    struct inject_message message;
    int memfd = -EBADF;
    unsigned count;
    ssize_t n = fdpass_receive(INJECT_FD, &message, sizeof(message), &memfd, 1, &count);
    cleanup_close int file = count ? memfd : -EBADF;
    if (n < 0)
        return (int)n;
    if (n != (ssize_t)sizeof(message) || message.kind != INJECT_SECRETS || file < 0)
        return -EBADMSG;
    return table_read(&inject->table, file);
}

static void take_message(
    struct inject *inject, const struct inject_message *message, int *fds, unsigned count)
{
    bool has_room = inject->conn_count < CONNS_MAX;
    if (message->kind == INJECT_CONNECTION && count == INJECT_CONNECTION_FDS && has_room) {
        if (conn_new(inject, message->secrets, fds[0], fds[1]) < 0)
            log_event(LOG_WARN, "cannot serve a connection with a secret", (char *)NULL);
        return;
    }
    while (count)
        close_fd(&fds[--count]);
}

static void read_messages(struct inject *inject)
{
    for (int i = 0; i < MESSAGES; i++) {
        struct inject_message message;
        int fds[INJECT_CONNECTION_FDS];
        unsigned count;
        ssize_t n = fdpass_receive_now(
            INJECT_FD, &message, sizeof(message), fds, INJECT_CONNECTION_FDS, &count);
        if (n == -EAGAIN)
            return;
        if (n == -EMSGSIZE) { /* no room for its descriptors: that connection ends */
            log_event(
                LOG_ERROR, "cannot serve a connection: too many open files", (char *)NULL);
            continue;
        }
        if (n == 0 || n == -ECONNRESET)
            _exit(0); /* nothing to write, and no file may be opened any more */
        if (n != (ssize_t)sizeof(message)) {
            log_event(LOG_ERROR, "unreadable message of hermes-egress", (char *)NULL);
            _exit(1);
        }
        take_message(inject, &message, fds, count);
    }
}

static void sweep(struct inject *inject)
{
    for (struct conn *c = TAILQ_FIRST(&inject->conns), *next; c; c = next) {
        next = TAILQ_NEXT(c, entry);
        if (inject->now_ms >= c->deadline_ms)
            conn_kill(c);
    }
    for (struct conn *c; (c = TAILQ_FIRST(&inject->dead));) {
        TAILQ_REMOVE(&inject->dead, c, entry);
        conn_free(c);
    }
}

static void on_event(struct inject *inject, const struct epoll_event *event)
{
    struct side *s = event->data.ptr;
    if (!s) {
        read_messages(inject);
        return;
    }
    if (s->conn->is_dead)
        return;
    if (event->events & (EPOLLHUP | EPOLLERR))
        conn_hung_up(s);
    conn_serve(s->conn);
}

/* Gives another turn to connections that were not finished. Returns whether some still are
 * not. */
static bool serve_more(struct inject *inject)
{
    bool has_more = false;
    for (struct conn *c = TAILQ_FIRST(&inject->conns), *next; c; c = next) {
        next = TAILQ_NEXT(c, entry);
        if (c->has_more)
            conn_serve(c);
        has_more = has_more || (!c->is_dead && c->has_more);
    }
    return has_more;
}

static void run(struct inject *inject) __attribute__((noreturn));
static void run(struct inject *inject)
{
    struct epoll_event events[EVENTS];
    bool has_more = false;
    for (;;) {
        int wait_ms = has_more ? 0 : TAILQ_EMPTY(&inject->conns) ? -1 : SWEEP_MS;
        int n = epoll_wait(inject->epoll_fd, events, EVENTS, wait_ms);
        inject->now_ms = clock_ms();
        for (int i = 0; i < n; i++)
            on_event(inject, &events[i]);
        has_more = serve_more(inject);
        sweep(inject);
    }
}

static int open_loop(struct inject *inject)
{
    struct epoll_event event = {.events = EPOLLIN};
    TAILQ_INIT(&inject->conns);
    TAILQ_INIT(&inject->dead);
    inject->now_ms = clock_ms();
    inject->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (inject->epoll_fd < 0 ||
        epoll_ctl(inject->epoll_fd, EPOLL_CTL_ADD, INJECT_FD, &event) < 0)
        return -errno;
    return 0;
}

int main(void)
{
    static struct inject inject;
    (void)signal(SIGPIPE, SIG_IGN);
    int r = sys_close_range(INJECT_FD + 1, ~0u, 0);
    if (r == 0)
        r = confine_identity();
    if (r < 0)
        return fail("cannot give up privileges", r);
    if ((r = receive_table(&inject)) < 0)
        return fail("cannot read the secrets", r);
    if ((r = open_loop(&inject)) < 0)
        return fail("cannot open what inject needs", r);
    if ((r = confine_rest()) < 0)
        return fail("cannot confine inject", r);
    run(&inject);
}
