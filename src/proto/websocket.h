/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The handshake of a WebSocket (RFC 6455), for client and server. libwslay does the frames. */

#include <stdbool.h>

enum { WEBSOCKET_ACCEPT = 29 };

/* Computes Sec-WebSocket-Accept from Sec-WebSocket-Key; false when the key is malformed. */
bool websocket_accept(const char *key, char ret[WEBSOCKET_ACCEPT]);

/* Whether a comma-separated header value contains `word`, in any case. `list` may be NULL. */
bool websocket_has_word(const char *list, const char *word);
