/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The server's side of a WebSocket's opening. */

#include "api/http.h"

/* Fills in the 101, or refuses: 426 when the client does not ask for a WebSocket, 403 to pages
 * that may not, 400 when it asks wrongly. No protocol and no extension is ever chosen. */
int websocket_begin(struct http_request *req, struct http_reply *reply, struct err *err);
