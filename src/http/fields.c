/* SPDX-License-Identifier: Apache-2.0 */

/* What a handler reads from the head of its request: headers and the query. */

#include "http/client.h"
#include "http/http.h"

#include "base/str.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

const char *http_header(const struct http_request *req, const char *name)
{
    return wire_find(&req->client->wire.head, name);
}

bool http_accepts(const struct http_request *req, const char *type)
{
    const char *accept = http_header(req, "Accept");
    return accept && strcasestr(accept, type);
}

bool http_is_json(const char *type)
{
    size_t len = strcspn(type, "; \t");
    if (strncasecmp(type, "application/", 12) != 0)
        return false;
    return (len == 16 && strncasecmp(type + 12, "json", 4) == 0) ||
           (len > 17 && strncasecmp(type + len - 5, "+json", 5) == 0);
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

ssize_t http_unescape(const char *from, size_t len, bool is_form, char *to)
{
    size_t used = 0;
    for (size_t i = 0; i < len; i++) {
        int c = (unsigned char)from[i];
        if (c == '%') {
            int high = i + 2 < len ? hex_digit(from[i + 1]) : -1;
            int low = high < 0 ? -1 : hex_digit(from[i + 2]);
            if (low < 0)
                return -EINVAL;
            c = high << 4 | low;
            i += 2;
        } else if (c == '+' && is_form) {
            c = ' ';
        }
        to[used++] = (char)c;
    }
    return (ssize_t)used;
}

/* Decodes `len` bytes in place and ends them with NUL. They are followed by a byte that may be
 * overwritten. */
static ssize_t decode(char *text, size_t len, struct err *err)
{
    ssize_t n = http_unescape(text, len, true, text);
    if (n < 0)
        return err_set(err, ERR_INVALID, EINVAL,
            "the query has a %% without two hexadecimal digits after it");
    text[n] = '\0';
    return n;
}

/* An argument without `=` is ignored. */
static int parse_argument(struct http_request *req, char *text, size_t len, struct err *err)
{
    char *equals = memchr(text, '=', len);
    if (!equals)
        return 0;
    if (req->query_count == HTTP_MAX_QUERY)
        return err_set(
            err, ERR_INVALID, E2BIG, "the query has more than %d arguments", HTTP_MAX_QUERY);
    char *value = equals + 1;
    ssize_t value_len = decode(value, (size_t)(text + len - value), err);
    ssize_t name_len = decode(text, (size_t)(equals - text), err);
    if (value_len < 0 || name_len < 0)
        return -EINVAL;
    req->query[req->query_count].name = text;
    req->query[req->query_count].value = value;
    req->query[req->query_count++].len = (size_t)value_len;
    return 0;
}

int http_parse_query(struct http_request *req, struct err *err)
{
    req->path_len = strcspn(req->target, "?");
    char *at = req->target + req->path_len;
    bool has_more = *at == '?';
    *at++ = '\0';
    while (has_more) {
        size_t len = strcspn(at, "&");
        has_more = at[len] == '&';
        int r = parse_argument(req, at, len, err);
        if (r < 0)
            return r;
        at += len + 1;
    }
    return 0;
}

const char *http_query_bytes(const struct http_request *req, const char *name, size_t *ret_len)
{
    *ret_len = 0;
    for (size_t i = 0; i < req->query_count; i++) {
        if (!str_eq(req->query[i].name, name))
            continue;
        *ret_len = req->query[i].len;
        return req->query[i].value;
    }
    return NULL;
}

const char *http_query(const struct http_request *req, const char *name)
{
    size_t len;
    return http_query_bytes(req, name, &len);
}

void http_follow(struct http_request *req, int fd)
{
    connection_follow(req->client->connection, fd);
}

void http_unfollow(struct http_request *req)
{
    connection_unfollow(req->client->connection);
}

bool http_is_gone(const struct http_request *req)
{
    return connection_is_gone(req->client->connection);
}

int http_query_flag(
    const struct http_request *req, const char *name, bool *ret, struct err *err)
{
    size_t len = 0;
    const char *value = http_query_bytes(req, name, &len);
    bool is_text = !value || strlen(value) == len;
    *ret = str_eq(value, "true");
    return is_text && (!value || *ret || str_eq(value, "false"))
               ? 0
               : err_field(err, name, "%s must be true or false", name);
}
