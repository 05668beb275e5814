/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Replies that libmicrohttpd cannot send: in the middle of a body, or without a thread. */

#include "http/http.h"

/* Sends the reply, then lingers (see raw_linger()). The caller closes the socket. */
void raw_reply(int fd, const struct http_reply *reply);

/* Lingering close: shuts down the sending side and discards what the client still sends, for a
 * moment. Without it, Linux would reset the connection and the client could lose the reply. */
void raw_linger(int fd);

/* Sends the head of a reply after which the connection uses another protocol. */
void raw_switch(int fd, const struct http_reply *reply);

/* Sends 503 without blocking. */
void raw_unavailable(int fd);
