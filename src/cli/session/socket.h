/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A WebSocket to the server. libcurl makes the connection, so TLS, proxies and unix sockets
 * work as for other routes. */

#include "base/buf.h"
#include "cli/session/client.h"

#include <sys/types.h>

struct client_socket {
    void *curl;
    int fd;          /* for poll(); data may be available even when it is not readable */
    struct buf rest; /* bytes that came after the server's reply */
    size_t rest_at;
};

int client_socket_open(
    const struct client *client, const char *path, struct client_socket *ret, struct err *err);
void client_socket_done(struct client_socket *s);

/* Like recv(2) and send(2) on a non-blocking socket, but return negative errno. */
ssize_t client_socket_receive(struct client_socket *s, void *to, size_t len);
ssize_t client_socket_send(struct client_socket *s, const void *data, size_t len);
