/* SPDX-License-Identifier: Apache-2.0 */

/* See server.h. One thread accepts connections and makes a thread for each; request.c handles
 * its requests, connection.c enforces deadlines. */

#include "http/server.h"

#include "base/address.h"
#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "http/client.h"
#include "http/request.h"
#include "http/send.h"
#include "session/terminal.h"
#include "state/memory_plan.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    MAX_LISTENERS = 32,
    ACCEPT_MAX = 64,         /* connections at a time from one listener */
    STACK_BYTES = 512 << 10, /* of a connection's thread */
    SCARCE_MS = 10,   /* wait before the next accept() when descriptors or memory are scarce */
    CANCEL_MS = 6000, /* for cancelled runs to end */
    REPLY_MS = 1000,  /* for clients to read the last replies */
    /* Descriptors that connection_limit() keeps free. */
    FDS_OF_SERVER = 128,
    FDS_PER_RUN = 12,
    FDS_PER_WAITER = 2,
    FDS_PER_SESSION = 5,
    FDS_PER_TERMINAL = 2,
};

struct server {
    struct state *state;
    struct connections *connections;
    int listen_fds[MAX_LISTENERS];
    unsigned count;
    int stop_fd; /* an eventfd that ends the accepting thread */
    pthread_t thread;
    bool has_thread;
};

/* Limits connections so that descriptors are left for runs, waiting requests, sessions and
 * terminals. */
static unsigned connection_limit(const struct state *state)
{
    struct admit_state now;
    struct rlimit fds;
    char text[2][32];
    uint64_t max = state->config.max_connections;
    if (getrlimit(RLIMIT_NOFILE, &fds) < 0)
        return (unsigned)max;
    admit_get_state(state->admit, &now);
    uint64_t needed = FDS_OF_SERVER + (uint64_t)FDS_PER_RUN * now.running_max +
                      (uint64_t)FDS_PER_WAITER * now.queue +
                      (uint64_t)FDS_PER_SESSION * state->config.max_sessions +
                      (uint64_t)FDS_PER_TERMINAL * terminals_max(&state->config, max);
    uint64_t room = fds.rlim_cur > needed ? (fds.rlim_cur - needed) / 8 * 7 : 0;
    if (room < fds.rlim_cur / 4)
        room = fds.rlim_cur / 4;
    if (max <= room)
        return (unsigned)max;
    (void)snprintf(text[0], sizeof(text[0]), "%llu", (unsigned long long)room);
    (void)snprintf(text[1], sizeof(text[1]), "%llu", (unsigned long long)fds.rlim_cur);
    log_event(LOG_WARN, "too few descriptors for max_connections; raise the limit (ulimit -n)",
        "connections", text[0], "descriptors", text[1], (char *)NULL);
    return (unsigned)room;
}

/* Bounds what the kernel keeps for a client that does not read, or that sends ahead: without
 * this it is up to ten megabytes a connection, which no budget counts (state/memory_plan.c).
 * The sockets that are accepted inherit it, and TCP_NODELAY: an event must not wait for the
 * acknowledgement of the one before. */
static void prepare_listener(int fd)
{
    const int bytes = SOCKET_BUFFER; /* the kernel doubles it */
    const int yes = 1;
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
    /* A client may leave between poll() and accept(). */
    (void)fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
}

static ssize_t receive(void *context, char *to, size_t max)
{
    const struct client *c = context;
    for (;;) {
        ssize_t n = recv(c->fd, to, max, 0);
        if (n >= 0 || errno != EINTR)
            return n < 0 ? -errno : n;
    }
}

/* connection_end() comes before close(): the watching thread must not shut down another socket
 * that got the same number. Afterwards nothing of the server may be used. */
static void end_client(struct client *c)
{
    int fd = c->fd;
    connection_end(c->connection);
    free(c);
    (void)close(fd);
}

static void *talk(void *arg)
{
    struct client *c = arg;
    bool goes_on = wire_begin(&c->wire) > 0 && request_serve(c);
    while (goes_on) {
        connection_phase(c->connection, PHASE_IDLE);
        goes_on = wire_begin(&c->wire) > 0;
        connection_phase(c->connection, PHASE_NEXT);
        goes_on = goes_on && request_serve(c);
    }
    end_client(c);
    return NULL;
}

static int start_thread(pthread_t *ret, void *(*run)(void *), void *arg, bool is_detached)
{
    pthread_attr_t attr;
    int r = pthread_attr_init(&attr);
    if (r != 0)
        return -r;
    (void)pthread_attr_setstacksize(&attr, STACK_BYTES);
    if (is_detached)
        (void)pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    r = pthread_create(ret, &attr, run, arg);
    (void)pthread_attr_destroy(&attr);
    return -r;
}

/* Takes fd. A client without a place or a thread gets 503. */
static void begin_client(struct server *server, int fd, const struct sockaddr *from)
{
    pthread_t thread;
    struct client *c = NULL;
    struct connection *connection = connection_begin(server->connections, fd, from);
    if (connection)
        c = malloc(sizeof(*c));
    if (c) {
        c->state = server->state;
        c->connection = connection;
        c->fd = fd;
        c->is_unix = from->sa_family == AF_UNIX;
        c->is_local = address_is_loopback(from);
        wire_init(&c->wire, receive, c);
        if (start_thread(&thread, talk, c, true) == 0)
            return;
    }
    send_unavailable(fd);
    if (connection)
        connection_end(connection);
    free(c);
    (void)close(fd);
}

/* Accepts what waits on one listener, up to ACCEPT_MAX: the others get their turn. */
static void accept_clients(struct server *server, int listen_fd)
{
    for (unsigned i = 0; i < ACCEPT_MAX; i++) {
        struct sockaddr_storage from = {.ss_family = AF_UNIX};
        socklen_t len = sizeof(from);
        int fd = accept4(listen_fd, (struct sockaddr *)&from, &len, SOCK_CLOEXEC);
        if (fd < 0 &&
            (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS))
            (void)poll(NULL, 0, SCARCE_MS);
        if (fd < 0)
            return;
        begin_client(server, fd, (const struct sockaddr *)&from);
    }
}

static void *accept_all(void *arg)
{
    struct server *server = arg;
    struct pollfd fds[MAX_LISTENERS + 1];
    for (unsigned i = 0; i < server->count; i++)
        fds[i] = (struct pollfd){.fd = server->listen_fds[i], .events = POLLIN};
    fds[server->count] = (struct pollfd){.fd = server->stop_fd, .events = POLLIN};
    for (;;) {
        if (poll(fds, server->count + 1, -1) < 0)
            continue;
        if (fds[server->count].revents)
            return NULL;
        for (unsigned i = 0; i < server->count; i++) {
            if (fds[i].revents)
                accept_clients(server, fds[i].fd);
        }
    }
}

static int start_accepting(struct server *server, struct err *err)
{
    server->stop_fd = eventfd(0, EFD_CLOEXEC);
    int r =
        server->stop_fd < 0 ? -errno : start_thread(&server->thread, accept_all, server, false);
    server->has_thread = r == 0;
    return r == 0 ? 0
                  : err_set(err, ERR_INTERNAL, -r, "cannot start to serve: %s", strerror(-r));
}

int server_start(struct server **ret, struct state *state, const int *listen_fds,
    unsigned count, struct err *err)
{
    struct server *server = xcalloc(1, sizeof(*server));
    server->state = state;
    server->stop_fd = -1;
    server->count = count < MAX_LISTENERS ? count : MAX_LISTENERS;
    for (unsigned i = 0; i < server->count; i++) {
        server->listen_fds[i] = listen_fds[i];
        prepare_listener(listen_fds[i]);
    }
    unsigned limit = connection_limit(state);
    state->terminals_max = terminals_max(&state->config, limit);
    int r = connections_open(&server->connections, state, limit, err);
    if (r == 0)
        r = start_accepting(server, err);
    if (r < 0) {
        server_stop(server, 0);
        return r;
    }
    *ret = server;
    return 0;
}

static void stop_accepting(struct server *server)
{
    const uint64_t one = 1;
    if (server->has_thread && write(server->stop_fd, &one, sizeof(one)) > 0)
        (void)pthread_join(server->thread, NULL);
    for (unsigned i = 0; i < server->count; i++)
        (void)close(server->listen_fds[i]);
    close_fd(&server->stop_fd);
}

static void wait_until_idle(struct server *server, uint64_t ms, bool slow)
{
    uint64_t until = clock_ms() + ms;
    while (clock_ms() < until &&
           (connections_busy(server->connections, slow) || server->state->background))
        (void)poll(NULL, 0, 5);
}

void server_stop(struct server *server, uint64_t grace_ms)
{
    struct state *state = server->state;
    state->stopping = true;
    stop_accepting(server);
    if (server->connections) {
        wait_until_idle(server, grace_ms, true);
        /* Refuse waiting requests and cancel running ones; readers get the end of their run.
         * Then wake the remaining readers and leave clients a moment for their reply. */
        admit_close(state->admit);
        sessions_stop(state->sessions);
        connections_cancel_all(server->connections);
        history_cancel_all(state->history);
        wait_until_idle(server, CANCEL_MS, false);
        history_close(state->history);
        wait_until_idle(server, REPLY_MS, true);
    }
    if (server->connections)
        connections_end_all(server->connections);
    connections_close(server->connections);
    free(server);
}
