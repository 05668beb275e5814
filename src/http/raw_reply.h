/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Replies that the library cannot send: in the middle of a body, or without a thread. */

#include "http/http.h"

/* Sends the reply and, for a moment, throws away what the client still sends, so that it can
 * read the reply before the kernel resets the connection. The caller closes. */
void raw_reply(int fd, const struct http_reply *reply);

/* That moment alone: for who has said his last word while the client may still be talking. */
void raw_linger(int fd);

/* The head of a reply after which the connection is no HTTP any more. */
void raw_switch(int fd, const struct http_reply *reply);

/* 503 at once, on a socket that does not block. */
void raw_unavailable(int fd);
