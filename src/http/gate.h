/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The first look at a request: what smuggles, or makes no sense, is refused and the connection
 * closed. */

#include "http/http.h"

/* ERR_INVALID, ERR_URI_TOO_LONG or ERR_HEADERS_TOO_LARGE; fills in declares_body. */
int gate_check(struct http_request *req, const char *version, struct err *err);

/* A request target by itself: "/path?query", printable, not too long. */
int gate_check_target(const char *target, struct err *err);

/* One header: a token as name, no control characters in the value. */
bool gate_header_ok(const char *name, size_t name_len, const char *value, size_t value_len);
