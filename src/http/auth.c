/* SPDX-License-Identifier: Apache-2.0 */

/* See auth.h. A key comes as `Authorization: Bearer KEY` or `X-API-Key: KEY`. On a server
 * without keys all callers are the same unnamed owner. These checks run before the body is
 * read. */

#include "http/auth.h"

#include "base/str.h"
#include "http/client.h"
#include "http/origin.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

struct credentials {
    const char *bearer;
    const char *api_key;
    unsigned authorizations;
    unsigned api_keys;
};

static void find_credentials(const struct wire_head *head, struct credentials *c)
{
    for (unsigned i = 0; i < head->count; i++) {
        const char *name = head->headers[i].name;
        const char *value = head->headers[i].value;
        if (strcasecmp(name, "authorization") == 0) {
            c->authorizations++;
            if (strncasecmp(value, "bearer ", 7) == 0)
                c->bearer = value + 7 + strspn(value + 7, " ");
        } else if (strcasecmp(name, "x-api-key") == 0) {
            c->api_keys++;
            c->api_key = value;
        }
    }
}

static int find(const struct http_request *req, const char *secret)
{
    return secret && *secret ? keys_find(&req->state->keys, secret, strlen(secret)) : -1;
}

/* Whether an origin is allowed. The origin "null" can be any page, even a program's output
 * shown in a frame: it is allowed only on servers with keys. */
static bool is_allowed(const struct http_request *req, const char *origin)
{
    return origin_is_listed(origin, req->state->config.allowed_origin) &&
           (req->state->keys.count || !str_eq(origin, "null"));
}

/* Whether a person followed a link. The other site's page led here but cannot read the answer,
 * and no GET changes anything. */
static bool is_link(const struct http_request *req)
{
    const char *mode = http_header(req, "Sec-Fetch-Mode");
    const char *place = http_header(req, "Sec-Fetch-Dest");
    return mode && place && str_eq(mode, "navigate") && str_eq(place, "document") &&
           str_eq(req->method, "GET") && !http_header(req, "Upgrade");
}

bool auth_is_foreign(const struct http_request *req)
{
    const char *origin = http_header(req, "Origin");
    const char *site = http_header(req, "Sec-Fetch-Site");
    const char *host = http_header(req, "Host");
    if (origin && is_allowed(req, origin))
        return false;
    if (origin && !origin_is_host(origin, host ? host : ""))
        return true;
    return site && !str_eq(site, "same-origin") && !str_eq(site, "none") &&
           (origin || !is_link(req));
}

/* A unix socket is not reached by a host name, so any Host is accepted there. */
static int check_host(const struct http_request *req, struct err *err)
{
    const char *hosts = req->state->config.hosts;
    const char *host = http_header(req, "Host");
    if ((req->is_unix && !hosts[0]) || host_is_ours(host ? host : "", hosts))
        return 0;
    return err_set(err, ERR_MISDIRECTED, EACCES,
        "`%.128s` is not a name of this server: call it by its address or as localhost, or add "
        "the name to the setting `hosts`",
        host ? host : "");
}

static int check_page(const struct http_request *req, struct err *err)
{
    int r = check_host(req, err);
    if (r < 0 || !auth_is_foreign(req))
        return r;
    return err_set(err, ERR_FORBIDDEN, EACCES,
        "pages of other origins may not call this server without a key; add the page's origin "
        "to the setting `allowed_origin`");
}

int auth_check_page(const struct http_request *req, struct err *err)
{
    if (req->state->keys.count == 0)
        return check_page(req, err);
    return req->state->config.hosts[0] ? check_host(req, err) : 0;
}

int auth_check(struct http_request *req, struct err *err)
{
    struct credentials c = {0};
    enum auth_class class = req->route->auth;
    req->owner = -1;
    if (req->state->keys.count == 0 || class == AUTH_NONE)
        return 0;
    find_credentials(&req->client->wire.head, &c);
    if (c.authorizations <= 1 && c.api_keys <= 1) {
        req->owner = find(req, c.api_key);
        if (req->owner < 0)
            req->owner = find(req, c.bearer);
    }
    if (req->owner >= 0 && class == AUTH_OPERATOR && !state_is_operator(req->state, req->owner))
        return err_set(err, ERR_FORBIDDEN, EACCES,
            "this is for operators: use a key that has `role = operator` in the keys file");
    if (req->owner >= 0)
        return 0;
    if (class == AUTH_LOCAL && req->is_local)
        return check_page(req, err); /* a web page in a local browser is a local client too */
    if (class == AUTH_RUNNER && c.api_keys)
        return err_set(err, ERR_FORBIDDEN, EACCES, "Invalid API Key");
    if (class == AUTH_RUNNER)
        return err_set(err, ERR_UNAUTHORIZED, EACCES,
            "Not authenticated: send X-API-Key: KEY, or Authorization: Bearer KEY");
    return err_set(err, ERR_UNAUTHORIZED, EACCES,
        c.authorizations + c.api_keys
            ? "the key is wrong"
            : "a key is needed: send Authorization: Bearer KEY, or X-API-Key: KEY");
}

void auth_cors(const struct http_request *req, struct http_reply *reply)
{
    const char *origin = http_header(req, "Origin");
    reply_header(reply, "Vary", "Origin");
    if (origin && strlen(origin) < sizeof(reply->headers[0].value) && is_allowed(req, origin))
        reply_header(reply, "Access-Control-Allow-Origin", origin);
}
