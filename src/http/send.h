/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The only writer of HTTP replies. Sending blocks; connection.c ends a connection whose client
 * does not read. */

#include "http/http.h"

/* Sends the reply: its body or answer, or the stream of reply->read, whose reply->done it
 * calls. With `is_last` the client is told that the connection ends. Returns false when the
 * connection cannot go on. */
bool send_reply(struct http_request *req, struct http_reply *reply, bool is_last);

/* Sends the head of a reply after which the connection uses another protocol. */
void send_switch(int fd, const struct http_reply *reply);

/* Tells a client that it may send its body. */
void send_continue(int fd);

/* Sends 503 without blocking. */
void send_unavailable(int fd);

/* Lingering close: shuts down the sending side and discards what the client still sends, for a
 * moment. Without it, Linux would reset the connection and the client could lose the reply. */
void send_linger(int fd);
