/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Checks a request's key, and whether a web page of another origin may send it. */

#include "http/http.h"
#include "http/routes.h"

/* Sets req->owner, or refuses with ERR_UNAUTHORIZED (with AUTH_RUNNER and a wrong X-API-Key,
 * ERR_FORBIDDEN). */
int auth_check(struct http_request *req, struct err *err);

/* Whether a web page of another origin sent the request, judged by the browser's headers, and
 * that origin is not allowed. Requests without these headers come from no browser and are not
 * foreign. */
bool auth_is_foreign(const struct http_request *req);

/* Call this before the route is looked up. On a server without keys it refuses requests of
 * foreign pages (ERR_FORBIDDEN) and Host names that may not be this server's (ERR_MISDIRECTED).
 * With keys it only checks Host, and only if the setting `hosts` is not empty. */
int auth_check_page(const struct http_request *req, struct err *err);

/* Adds the headers that let the configured origins read the reply. */
void auth_cors(const struct http_request *req, struct http_reply *reply);
