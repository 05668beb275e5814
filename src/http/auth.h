/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Who asks, and from which web pages. */

#include "http/http.h"
#include "http/routes.h"

/* Sets req->owner, or refuses with ERR_UNAUTHORIZED (ERR_FORBIDDEN where the route says so). */
int auth_check(struct http_request *req, struct err *err);

/* Whether a page of another origin asks that may not, by what the browser says of the page. A
 * request that no browser made says nothing, and is not foreign. */
bool auth_is_foreign(const struct http_request *req);

/* Before the route is looked up. Where no key keeps pages of others out, refuses what such a
 * page sends (ERR_FORBIDDEN) and names that may be a stranger's (ERR_MISDIRECTED); the second
 * also with keys, where `hosts` is set. */
int auth_check_page(const struct http_request *req, struct err *err);

/* Adds the headers that let the configured origins read the reply. */
void auth_cors(const struct http_request *req, struct http_reply *reply);
