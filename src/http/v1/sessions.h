/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the handlers of sessions share. */

#include "http/http.h"
#include "run/encode.h"
#include "session/session.h"

/* Takes value. */
void reply_value(struct http_reply *reply, int status, json_t *value);

/* The session that the path names, if it is the caller's, noted for the log; else NULL with
 * err. The caller owns a reference. */
struct session *find_session(struct http_request *req, struct err *err);

/* When the session is dead or expired the refusal tells so: 0 with the reply. Else r. */
int refuse_lost(struct session *s, struct http_reply *reply, int r, const struct err *err);

/* A descriptor that becomes readable when the client leaves; negative errno with err. */
int follow_begin(struct http_request *req, struct err *err);
void follow_end(struct http_request *req, int fd);
