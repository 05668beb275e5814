/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A route of a server that is a WebSocket: the connection is libcurl's, so that TLS, proxies
 * and unix sockets are as for every other route. */

#include "base/buf.h"
#include "cli/session/client.h"

#include <sys/types.h>

struct client_socket {
    void *curl;
    int fd;          /* to poll; there may be something to read also when it is quiet */
    struct buf rest; /* what came after the server's answer */
    size_t rest_at;
};

int client_socket_open(
    const struct client *client, const char *path, struct client_socket *ret, struct err *err);
void client_socket_done(struct client_socket *s);

/* As recv(2) and send(2) on a socket that does not block, with negative errno. */
ssize_t client_socket_receive(struct client_socket *s, void *to, size_t len);
ssize_t client_socket_send(struct client_socket *s, const void *data, size_t len);
