/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Functions that the session handlers share. */

#include "http/call.h"
#include "run/encode.h"
#include "session/session.h"

/* Takes `value`. */
void reply_value(struct http_reply *reply, int status, json_t *value);

/* Finds the session of the path if the caller owns it, and notes its id for the log. Else NULL
 * with err. The caller owns a reference. */
struct session *find_session(struct http_request *req, struct err *err);

/* When the session is dead or expired, fills in a reply that says so and returns 0. Otherwise
 * returns r. */
int refuse_lost(struct session *s, struct http_reply *reply, int r, const struct err *err);
