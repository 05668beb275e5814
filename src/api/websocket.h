/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The opening of a WebSocket (RFC 6455); the frames are libwslay's. */

#include "api/http.h"

enum { WEBSOCKET_ACCEPT = 29 };

/* The answer to a client's key; false when it is none. */
bool websocket_accept(const char *key, char ret[WEBSOCKET_ACCEPT]);

/* Whether a header that is a list has this word. */
bool websocket_has_word(const char *list, const char *word);

/* Fills in the 101, or refuses: 426 when the client does not ask for a WebSocket, 403 to pages
 * that may not, 400 when it asks wrongly. No protocol and no extension is ever chosen. */
int websocket_begin(struct http_request *req, struct http_reply *reply, struct err *err);
