/* SPDX-License-Identifier: Apache-2.0 */

/* See auth.h. Keys come as `Authorization: Bearer KEY` or `X-API-Key: KEY`; without any key in
 * the settings everybody is the same nameless owner. Runs before the body is read. */

#include "http/auth.h"

#include "base/str.h"

#include <errno.h>
#include <microhttpd.h>
#include <string.h>
#include <strings.h>

struct credentials {
    const char *bearer;
    const char *api_key;
    unsigned authorizations;
    unsigned api_keys;
};

static enum MHD_Result look(
    void *context, enum MHD_ValueKind kind, const char *name, const char *value)
{
    struct credentials *c = context;
    if (strcasecmp(name, "authorization") == 0) {
        c->authorizations++;
        if (value && strncasecmp(value, "bearer ", 7) == 0)
            c->bearer = value + 7 + strspn(value + 7, " ");
    } else if (strcasecmp(name, "x-api-key") == 0) {
        c->api_keys++;
        c->api_key = value;
    }
    return MHD_YES;
}

static int find(const struct http_request *req, const char *secret)
{
    return secret && *secret ? keys_find(&req->service->keys, secret, strlen(secret)) : -1;
}

int auth_check(struct http_request *req, struct err *err)
{
    struct credentials c = {0};
    enum auth_class class = req->route->auth;
    req->owner = -1;
    if (req->service->keys.count == 0 || class == AUTH_NONE)
        return 0;
    (void)MHD_get_connection_values(req->mhd, MHD_HEADER_KIND, look, &c);
    if (c.authorizations <= 1 && c.api_keys <= 1) {
        req->owner = find(req, c.api_key);
        if (req->owner < 0)
            req->owner = find(req, c.bearer);
    }
    if (req->owner >= 0 || (class == AUTH_LOCAL && req->is_local))
        return 0;
    if (class == AUTH_RUNNER && c.api_keys)
        return err_set(err, ERR_FORBIDDEN, EACCES, "Invalid API Key");
    if (class == AUTH_RUNNER)
        return err_set(err, ERR_UNAUTHORIZED, EACCES,
            "Not authenticated: send X-API-Key: KEY, or Authorization: Bearer KEY");
    return err_set(err, ERR_UNAUTHORIZED, EACCES,
        c.authorizations + c.api_keys
            ? "the key is wrong"
            : "a key is needed: Authorization: Bearer KEY, or X-API-Key: KEY");
}

/* Whether origin is one of a list with commas. */
static bool is_listed(const char *list, const char *origin)
{
    size_t len = strlen(origin);
    while (*list) {
        list += strspn(list, ", ");
        size_t item = strcspn(list, ", ");
        if ((item == 1 && *list == '*') || (item == len && strncmp(list, origin, len) == 0))
            return true;
        list += item;
    }
    return false;
}

bool auth_is_foreign(const struct http_request *req)
{
    const char *origin = http_header(req, "Origin");
    return origin && !is_listed(req->service->config.allowed_origin, origin);
}

void auth_cors(const struct http_request *req, struct http_reply *reply)
{
    const char *origin = http_header(req, "Origin");
    reply_header(reply, "Vary", "Origin");
    if (origin && strlen(origin) < sizeof(reply->headers[0].value) &&
        is_listed(req->service->config.allowed_origin, origin))
        reply_header(reply, "Access-Control-Allow-Origin", origin);
}
