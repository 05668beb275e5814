/* SPDX-License-Identifier: Apache-2.0 */

/* The head of a request: request line, headers, and what they say about the body (RFC 9112).
 * What the standard lets a lenient reader repair is refused here. */

#include "http/wire.h"

#include "base/str.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

static int bad(struct err *err, const char *what)
{
    return err_set(err, ERR_INVALID, EBADMSG, "%s", what);
}

static bool is_alnum(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

static bool has_only(const char *text, size_t len, const char *extra)
{
    for (size_t i = 0; i < len; i++) {
        if (!text[i] || (!is_alnum(text[i]) && !strchr(extra, text[i])))
            return false;
    }
    return true;
}

static bool is_token(const char *text, size_t len)
{
    return len > 0 && has_only(text, len, "!#$%&'*+-.^_`|~");
}

int wire_check_target(const char *target, struct err *err)
{
    size_t len = strlen(target);
    if (len > WIRE_TARGET_MAX)
        return err_set(err, ERR_URI_TOO_LONG, ENAMETOOLONG,
            "the request's target has more than %d bytes", WIRE_TARGET_MAX);
    if (target[0] != '/')
        return bad(err, "the request's target is not a path");
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)target[i];
        if (c <= 0x20 || c >= 0x7f || c == '#')
            return bad(err, "the request's target has characters that need %XX");
    }
    return 0;
}

static int bad_first_line(struct err *err)
{
    return bad(err, "the request's first line is not METHOD, PATH and HTTP/1.1 with one space "
                    "between them");
}

static int parse_version(struct wire_head *head, const char *version, struct err *err)
{
    size_t len = strlen(version);
    bool is_version = len == 8 && strncmp(version, "HTTP/", 5) == 0 && version[6] == '.' &&
                      version[5] >= '0' && version[5] <= '9' && version[7] >= '0' &&
                      version[7] <= '9';
    if (!is_version)
        return bad_first_line(err);
    head->is_1_1 = str_eq(version, "HTTP/1.1");
    return head->is_1_1 || str_eq(version, "HTTP/1.0")
               ? 0
               : err_set(err, ERR_VERSION, EPROTONOSUPPORT,
                     "HTTP %s is not supported: use HTTP/1.1", version + 5);
}

int wire_parse_request(struct wire_head *head, char *line, size_t len, struct err *err)
{
    line[len] = '\0';
    char *target = strchr(line, ' ');
    char *version = target ? strrchr(target + 1, ' ') : NULL;
    if (!version)
        return bad_first_line(err);
    *target++ = *version++ = '\0';
    if (!is_token(line, strlen(line)) || strlen(line) > WIRE_METHOD_MAX)
        return bad(err, "the request's method is not a word");
    head->method = line;
    head->target = target;
    int r = parse_version(head, version, err);
    return r < 0 ? r : wire_check_target(target, err);
}

int wire_parse_header(struct wire_head *head, char *line, size_t len, struct err *err)
{
    char *colon = memchr(line, ':', len);
    if (line[0] == ' ' || line[0] == '\t')
        return bad(err, "a header is folded: each header is one line");
    if (!colon || !is_token(line, (size_t)(colon - line)))
        return bad(err, "a header has no name, or a name with characters that are not allowed");
    char *value = colon + 1;
    char *end = line + len;
    while (value < end && (*value == ' ' || *value == '\t'))
        value++;
    while (end > value && (end[-1] == ' ' || end[-1] == '\t'))
        end--;
    *colon = *end = '\0';
    head->headers[head->count++] = (struct wire_header){line, value};
    return 0;
}

const char *wire_find(const struct wire_head *head, const char *name)
{
    for (unsigned i = 0; i < head->count; i++) {
        if (strcasecmp(head->headers[i].name, name) == 0)
            return head->headers[i].value;
    }
    return NULL;
}

/* Headers that may occur once at most. With two of them, a proxy, a browser and this server
 * could each use a different one. */
static const char *const singles[] = {"Host", "Content-Length", "Transfer-Encoding",
    "Content-Type", "Origin", "Sec-Fetch-Site", "Expect"};

static int check_singles(const struct wire_head *head, struct err *err)
{
    for (size_t s = 0; s < sizeof(singles) / sizeof(singles[0]); s++) {
        unsigned found = 0;
        for (unsigned i = 0; i < head->count; i++)
            found += strcasecmp(head->headers[i].name, singles[s]) == 0;
        if (found > 1)
            return err_set(
                err, ERR_INVALID, EBADMSG, "there is more than one %s header", singles[s]);
    }
    return 0;
}

static int frame_by_length(struct wire_head *head, const char *text, struct err *err)
{
    size_t len = strlen(text);
    if (len == 0 || len > WIRE_LENGTH_DIGITS || strspn(text, "0123456789") != len)
        return bad(err, "the content length is not a number");
    return str_parse_u64(text, &head->length) < 0
               ? bad(err, "the content length is not a number")
               : 0;
}

static int frame_by_coding(struct wire_head *head, const char *coding, struct err *err)
{
    if (!head->is_1_1)
        return bad(err, "HTTP/1.0 has no transfer encoding");
    if (strcasecmp(coding, "chunked") != 0)
        return err_set(err, ERR_UNSUPPORTED, ENOTSUP, "the transfer encoding is not `chunked`");
    head->is_chunked = true;
    return 0;
}

/* Whether a list of words, in one header or several, contains the word. */
static bool has_word(const struct wire_head *head, const char *name, const char *word)
{
    size_t len = strlen(word);
    for (unsigned i = 0; i < head->count; i++) {
        if (strcasecmp(head->headers[i].name, name) != 0)
            continue;
        for (const char *at = head->headers[i].value; at && *at;) {
            at += strspn(at, ", \t");
            size_t n = strcspn(at, ", \t");
            if (n == len && strncasecmp(at, word, len) == 0)
                return true;
            at += n;
        }
    }
    return false;
}

/* The characters of a name or address with a port. Readers differ about what stands beside
 * them: a user, a list, a path. */
static int check_host(const struct wire_head *head, struct err *err)
{
    const char *host = wire_find(head, "Host");
    if (!host)
        return head->is_1_1 ? bad(err, "the Host header is missing") : 0;
    return has_only(host, strlen(host), "-._~%!$&'()*+;=:[]")
               ? 0
               : bad(err, "the Host header has characters that are not allowed");
}

int wire_frame(struct wire_head *head, struct err *err)
{
    head->is_chunked = false;
    head->length = 0;
    int r = check_singles(head, err);
    if (r == 0)
        r = check_host(head, err);
    if (r < 0)
        return r;
    const char *length = wire_find(head, "Content-Length");
    const char *coding = wire_find(head, "Transfer-Encoding");
    if (length && coding)
        return bad(err, "there are Content-Length and Transfer-Encoding");
    if (length)
        r = frame_by_length(head, length, err);
    else if (coding)
        r = frame_by_coding(head, coding, err);
    const char *expect = wire_find(head, "Expect");
    head->awaits_continue = expect && head->is_1_1 && strcasecmp(expect, "100-continue") == 0 &&
                            (head->is_chunked || head->length);
    head->is_last = !head->is_1_1 || has_word(head, "Connection", "close");
    return r;
}
