/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Every open connection and what it waits for. A thread closes connections that exceed a total
 * deadline, and notices clients that leave while their run goes on. */

#include "service/service.h"

#include <stdbool.h>
#include <stdint.h>

enum phase {
    PHASE_HEADERS,  /* the server waits for the headers of the first request, or reads them */
    PHASE_IDLE,     /* the server waits for the first byte of a later request */
    PHASE_NEXT,     /* the server reads the headers of a later request */
    PHASE_BODY,     /* the server reads the body of a request */
    PHASE_HANDLING, /* the server works on a request; only the limits of a run apply */
    PHASE_REPLY,    /* the server sends the reply */
    PHASE_TAKEN,    /* the connection has become a WebSocket; it has no deadline */
};

/* A connection is a stranger's until it has proven itself: with a key, or, on a server without
 * keys, with a complete valid request. Strangers get a share of the connections and the
 * shortest deadlines. */
struct connections;
struct connection;
struct sockaddr;

/* Makes room for `max` connections, and some more that are still being closed. */
int connections_open(
    struct connections **ret, struct state *state, unsigned max, struct err *err);

/* Stops the thread. No connection may be open. */
void connections_close(struct connections *all);

/* Counts a new connection as a stranger's. When strangers exceed their share, the oldest
 * stranger of the address with the most strangers is closed, whatever it does, if it has had
 * two seconds. When almost no place is left, it is closed at once. NULL when there is no place.
 * `from` may be NULL. */
struct connection *connection_begin(
    struct connections *all, int fd, const struct sockaddr *from);
void connection_end(struct connection *c);

/* Marks a connection as proven, so that strangers cannot push it out. `owner` is its key (-1 on
 * a server without keys). With several keys, one key may have three quarters of the proven
 * places. When the key, or all keys together, have no place left, the connection that has
 * waited longest for its next request is closed. False when there is none: the request gets
 * 503. */
bool connection_prove(struct connection *c, int owner);

void connection_phase(struct connection *c, enum phase phase);

void connection_follow(struct connection *c, int cancel_fd);
void connection_unfollow(struct connection *c);
bool connection_is_gone(const struct connection *c);

/* Writes to the cancel descriptor of every followed request. */
void connections_cancel_all(struct connections *all);

/* Number of connections with a request in progress: the server works on it, or, with `slow`,
 * the client still sends it, has not read its reply, or uses another protocol. */
unsigned connections_busy(struct connections *all, bool slow);

/* Shuts down every connection and waits until their threads have called connection_end(). */
void connections_end_all(struct connections *all);
