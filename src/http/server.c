/* SPDX-License-Identifier: Apache-2.0 */

/* See server.h. libmicrohttpd listens and makes a thread for each connection; request.c handles
 * its requests. The library's own timeouts are off: connection.c enforces total deadlines. */

#include "http/server.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "http/connection.h"
#include "http/raw_reply.h"
#include "http/request.h"
#include "session/terminal.h"
#include "state/memory_plan.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    MAX_DAEMONS = 32,      /* listening sockets */
    POOL_BYTES = 32 << 10, /* request line and headers of a connection */
    STACK_BYTES = 512 << 10,
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
    struct MHD_Daemon *daemons[MAX_DAEMONS];
    unsigned count;
};

static void on_connection(void *context, struct MHD_Connection *mhd, void **socket_context,
    enum MHD_ConnectionNotificationCode how)
{
    struct server *server = context;
    if (how == MHD_CONNECTION_NOTIFY_STARTED) {
        const union MHD_ConnectionInfo *info =
            MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD);
        const union MHD_ConnectionInfo *from =
            MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
        *socket_context = connection_begin(
            server->connections, info->connect_fd, from ? from->client_addr : NULL);
        if (!*socket_context) {
            raw_unavailable(info->connect_fd);
            (void)shutdown(info->connect_fd, SHUT_RDWR);
        }
    } else if (*socket_context) {
        /* Either libmicrohttpd had no thread for it, or the client is gone and this has no
         * effect. */
        if (!connection_has_spoken(*socket_context))
            raw_unavailable(connection_fd(*socket_context));
        connection_end(*socket_context);
    }
}

static void on_log(void *context, const char *format, va_list args)
{
    char text[256];
    if (log_get_level() < LOG_DEBUG)
        return;
    (void)vsnprintf(text, sizeof(text), format, args);
    log_event(LOG_DEBUG, "http", "detail", text, (char *)NULL);
}

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
 * this it is up to ten megabytes a connection, which nobody counts (state/memory_plan.c).
 * Sockets that are accepted inherit it. */
static void bound_buffers(int listen_fd)
{
    const int bytes = SOCKET_BUFFER; /* the kernel doubles it */
    (void)setsockopt(listen_fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
    (void)setsockopt(listen_fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes));
}

/* The library closes what is past its own limit without a word; ours is in connection.c. */
static struct MHD_Daemon *start_daemon(struct server *server, int listen_fd)
{
    const unsigned no_limit = INT_MAX;
    return MHD_start_daemon(MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_THREAD_PER_CONNECTION |
                                MHD_USE_POLL | MHD_USE_ITC | MHD_USE_ERROR_LOG,
        0, NULL, NULL, request_go_on, NULL, MHD_OPTION_EXTERNAL_LOGGER, on_log, NULL,
        MHD_OPTION_LISTEN_SOCKET, listen_fd, MHD_OPTION_CONNECTION_LIMIT, no_limit,
        MHD_OPTION_CONNECTION_TIMEOUT, 0u, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        (size_t)POOL_BYTES, MHD_OPTION_THREAD_STACK_SIZE, (size_t)STACK_BYTES,
        MHD_OPTION_STRICT_FOR_CLIENT, 0, MHD_OPTION_URI_LOG_CALLBACK, request_begin,
        server->state, MHD_OPTION_NOTIFY_COMPLETED, request_end, NULL,
        MHD_OPTION_NOTIFY_CONNECTION, on_connection, server, MHD_OPTION_END);
}

int server_start(struct server **ret, struct state *state, const int *listen_fds,
    unsigned count, struct err *err)
{
    struct server *server = xcalloc(1, sizeof(*server));
    server->state = state;
    if (count > MAX_DAEMONS)
        count = MAX_DAEMONS;
    unsigned limit = connection_limit(state);
    state->terminals_max = terminals_max(&state->config, limit);
    int r = connections_open(&server->connections, state, limit, err);
    for (unsigned i = 0; r == 0 && i < count; i++) {
        bound_buffers(listen_fds[i]);
        server->daemons[i] = start_daemon(server, listen_fds[i]);
        if (server->daemons[i])
            server->count++;
        else
            r = err_set(err, ERR_INTERNAL, errno, "cannot start to serve: %s", strerror(errno));
    }
    if (r < 0) {
        server_stop(server, 0);
        return r;
    }
    *ret = server;
    return 0;
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
    for (unsigned i = 0; i < server->count; i++) {
        int fd = MHD_quiesce_daemon(server->daemons[i]);
        if (fd >= 0)
            (void)close(fd);
    }
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
    for (unsigned i = 0; i < server->count; i++)
        MHD_stop_daemon(server->daemons[i]);
    connections_close(server->connections);
    free(server);
}
