/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Who asks, and from which web pages. */

#include "http/http.h"
#include "http/routes.h"

/* Sets req->owner, or refuses with ERR_UNAUTHORIZED (ERR_FORBIDDEN where the route says so). */
int auth_check(struct http_request *req, struct err *err);

/* Whether a page of another site asks that may not: a browser sends its Origin, and does not
 * keep a page from what is no HTTP. */
bool auth_is_foreign(const struct http_request *req);

/* Adds the headers that let the configured origins read the reply. */
void auth_cors(const struct http_request *req, struct http_reply *reply);
