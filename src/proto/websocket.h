/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What both sides of a WebSocket's opening (RFC 6455) compute; the frames are libwslay's. */

#include <stdbool.h>

enum { WEBSOCKET_ACCEPT = 29 };

/* The answer to a client's key; false when it is none. */
bool websocket_accept(const char *key, char ret[WEBSOCKET_ACCEPT]);

/* Whether a header that is a list, or NULL, has this word. */
bool websocket_has_word(const char *list, const char *word);
