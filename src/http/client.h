/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* One client: its socket, its place among the connections and the reader of its requests. */

#include "http/connection.h"
#include "http/wire.h"

struct client {
    struct state *state;
    struct connection *connection;
    int fd;
    bool is_unix;
    bool is_local; /* from loopback or a unix socket */
    struct wire wire;
};
