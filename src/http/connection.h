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

struct connections;
struct connection;

/* Beside max there is room for some more, whose requests are answered with 503. */
int connections_open(
    struct connections **ret, struct service *service, unsigned max, struct err *err);

/* Stops the thread; no connection may be open. */
void connections_close(struct connections *all);

/* Past max, the connection that has waited longest for its next request, or has been silent for
 * two seconds, is closed for the new one; where there is none, the new one is extra. NULL when
 * there is no room for that either. */
struct connection *connection_begin(struct connections *all, int fd);
void connection_end(struct connection *c);
bool connection_is_extra(const struct connection *c);

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
