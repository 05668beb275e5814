/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* HTTP/1.1, with a thread per connection. */

#include "service/service.h"

struct server;

/* Serves on these listening sockets and takes them. */
int server_start(struct server **ret, struct state *state, const int *listen_fds,
    unsigned count, struct err *err);

/* Stops accepting, waits up to grace_ms for requests to end, cancels the rest, and ends every
 * connection. */
void server_stop(struct server *server, uint64_t grace_ms);
