/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The server's side of a WebSocket handshake. */

#include "http/http.h"
#include "proto/websocket.h"

/* Checks the handshake and computes the answer to its key. The error becomes 426 (with headers
 * in the reply) when the client does not ask for a WebSocket, 403 for foreign pages, 400 for an
 * invalid handshake. */
int websocket_check(const struct http_request *req, struct http_reply *reply,
    char ret_accept[WEBSOCKET_ACCEPT], struct err *err);

/* Fills in the reply 101. It never selects a subprotocol or an extension. */
void websocket_answer(struct http_reply *reply, const char *accept);
