/* SPDX-License-Identifier: Apache-2.0 */

/* See upstream.h. */

#include "egress/upstream.h"

#include "base/base64.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { MAX_HOST = 253, MAX_CREDENTIALS = 255 };

static bool is_host(const char *host)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                  "0123456789.-_:";
    size_t len = strspn(host, allowed);
    return len > 0 && len <= MAX_HOST && host[len] == '\0';
}

size_t upstream_request(
    char ret[UPSTREAM_REQUEST], const char *host, uint16_t port, const char *credentials)
{
    char to[MAX_HOST + sizeof("[]:65535")];
    char word[(MAX_CREDENTIALS + 2) / 3 * 4 + 1] = "";
    size_t len = strlen(credentials);
    if (!is_host(host) || len > MAX_CREDENTIALS)
        return 0;
    bool is_v6 = strchr(host, ':') != NULL;
    (void)snprintf(to, sizeof(to), is_v6 ? "[%s]:%u" : "%s:%u", host, (unsigned)port);
    base64_encode(credentials, len, word);
    word[base64_size(len)] = '\0';
    int n = snprintf(ret, UPSTREAM_REQUEST, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n%s%s%s\r\n", to,
        to, len ? "Proxy-Authorization: Basic " : "", word, len ? "\r\n" : "");
    return (size_t)n;
}

/* One character of "HTTP/1.x NNN", at its place; false when it is another. */
static bool read_status(struct upstream *u, size_t at, char c)
{
    static const char start[] = "HTTP/1.";
    bool is_digit = c >= '0' && c <= '9';
    if (at < strlen(start))
        return c == start[at];
    if (at == 7)
        return c == '0' || c == '1';
    if (at == 8)
        return c == ' ';
    if (at < 12) {
        u->status = (uint16_t)(u->status * 10 + (is_digit ? c - '0' : 0));
        return is_digit;
    }
    return at > 12 || c == ' ' || c == '\r' || c == '\n';
}

/* Reads one character; returns whether it may stand there. */
static bool read_char(struct upstream *u, char c)
{
    size_t at = u->taken;
    if (++u->taken > UPSTREAM_MAX_HEAD || c == '\0')
        return false;
    if (!u->has_line && !read_status(u, at, c))
        return false;
    if (c == '\n') {
        u->has_line = 1;
        u->newlines++;
    } else if (c != '\r') {
        u->newlines = 0;
    }
    return true;
}

enum upstream_state upstream_feed(
    struct upstream *u, const char *data, size_t len, size_t *ret_taken)
{
    size_t at = 0;
    while (at < len && u->state == UPSTREAM_MORE) {
        if (!read_char(u, data[at++]))
            u->state = UPSTREAM_FAILED;
        else if (u->newlines == 2)
            u->state = u->status >= 200 && u->status <= 299 ? UPSTREAM_OPEN : UPSTREAM_FAILED;
    }
    *ret_taken = at;
    return u->state;
}
