/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Every open connection and what it is waiting for. A thread closes those that are late in
 * total, which the library's idle timeouts cannot, and notices clients that leave while a run
 * goes on. */

#include "service/service.h"

#include <stdbool.h>
#include <stdint.h>

enum phase {
    PHASE_HEADERS,  /* of the first request of a connection */
    PHASE_IDLE,     /* between requests; the next one's headers included */
    PHASE_NEXT,     /* headers of a later request, from its first line on */
    PHASE_BODY,     /* of a request */
    PHASE_HANDLING, /* ours: no deadline but the run's own */
    PHASE_REPLY,    /* the client takes what we send */
    PHASE_TAKEN,    /* no HTTP any more: as long as both sides like */
};

/* A connection is a stranger's until it has proven itself: by a key, or, on a server without
 * keys, by a whole request that makes sense. Strangers have a share of the connections to
 * themselves, and the least patience. */
struct connections;
struct connection;
struct sockaddr;

/* Beside max there is room for some more while others are being closed. */
int connections_open(
    struct connections **ret, struct state *state, unsigned max, struct err *err);

/* Stops the thread; no connection may be open. */
void connections_close(struct connections *all);

/* A stranger's. Past their share the oldest stranger of the address that has the most of them
 * goes, whatever it is at, if it had two seconds; where places run out altogether, at once.
 * NULL when there is no place. `from` may be NULL. */
struct connection *connection_begin(
    struct connections *all, int fd, const struct sockaddr *from);
void connection_end(struct connection *c);

/* It is no stranger's from here on, and no stranger can push it out: its caller has the key
 * `owner` (-1 where there are no keys). One of several keys may have three quarters of these
 * places. Where all places that the key may have are taken, the connection that has waited
 * longest for its next request is closed; false when none waits: the request gets 503. */
bool connection_prove(struct connection *c, int owner);

/* Whether it ever got as far as a request line. */
bool connection_has_spoken(const struct connection *c);

void connection_phase(struct connection *c, enum phase phase);
int connection_fd(const struct connection *c);

void connection_follow(struct connection *c, int cancel_fd);
void connection_unfollow(struct connection *c);
bool connection_is_gone(const struct connection *c);

/* Tells every run that is followed to cancel itself. */
void connections_cancel_all(struct connections *all);

/* Connections that have a request under way: one that we work on, or, with `slow`, also one
 * whose client still sends or has not taken its reply, or that is no HTTP any more. */
unsigned connections_busy(struct connections *all, bool slow);
