/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The first check of a request. Refuses everything that could be request smuggling or makes no
 * sense. */

#include "http/http.h"

/* ERR_INVALID, ERR_URI_TOO_LONG or ERR_HEADERS_TOO_LARGE. Sets req->declares_body. */
int gate_check(struct http_request *req, const char *version, struct err *err);

/* Checks a request target: "/path?query", printable, not too long. */
int gate_check_target(const char *target, struct err *err);

/* Checks one header: the name is a token, the value has no control characters. */
bool gate_header_ok(const char *name, size_t name_len, const char *value, size_t value_len);
