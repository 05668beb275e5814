/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The server's side of a WebSocket's opening. */

#include "http/http.h"
#include "proto/websocket.h"

/* Whether the client asks for a WebSocket as it should, and the answer to its key. 426 when it
 * does not, with headers for the reply; 403 to pages that may not, 400 when it asks wrongly. */
int websocket_check(const struct http_request *req, struct http_reply *reply,
    char ret_accept[WEBSOCKET_ACCEPT], struct err *err);

/* Fills in the 101. No protocol and no extension is ever chosen. */
void websocket_answer(struct http_reply *reply, const char *accept);
