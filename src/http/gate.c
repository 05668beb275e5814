/* SPDX-License-Identifier: Apache-2.0 */

/* See gate.h. libmicrohttpd 0.9.75 accepts duplicate and conflicting lengths, spaces before the
 * colon and unknown codings. A proxy in front may read the same bytes differently. What is
 * still accepted (bare LF, folded headers) is listed in docs/security.md. */

#include "http/gate.h"

#include "base/str.h"

#include <errno.h>
#include <microhttpd.h>
#include <string.h>
#include <strings.h>

/* TARGET_MAX is in bytes; longer targets are not from honest clients. */
enum { TARGET_MAX = 8192, HEADERS_MAX = 100 };

/* Headers that may occur once at most. With two of them, a proxy, a browser and this server
 * could each use a different one. */
enum single { HOST, LENGTH, CODING, TYPE, ORIGIN, SITE, SINGLES };
static const char *const single_names[SINGLES] = {
    "Host", "Content-Length", "Transfer-Encoding", "Content-Type", "Origin", "Sec-Fetch-Site"};

/* Results of the walk over the headers. */
struct findings {
    unsigned count;
    unsigned singles[SINGLES];
    bool is_bad;
    bool other_coding;
    bool bad_length;
    bool has_bytes; /* the length is not 0 */
};

bool gate_header_ok(const char *name, size_t name_len, const char *value, size_t value_len)
{
    static const char extra[] = "!#$%&'*+-.^_`|~";
    if (name_len == 0)
        return false;
    for (size_t i = 0; i < name_len; i++) {
        char c = name[i];
        bool is_token = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                        (c >= '0' && c <= '9') || (c && strchr(extra, c));
        if (!is_token)
            return false;
    }
    for (size_t i = 0; i < value_len; i++) {
        unsigned char c = (unsigned char)value[i];
        if ((c < 0x20 && c != '\t') || c == 0x7f)
            return false;
    }
    return true;
}

int gate_check_target(const char *target, struct err *err)
{
    size_t len = strlen(target);
    if (len > TARGET_MAX)
        return err_set(err, ERR_URI_TOO_LONG, ENAMETOOLONG,
            "the request's target has more than %d bytes", TARGET_MAX);
    if (target[0] != '/')
        return err_set(err, ERR_INVALID, EINVAL, "the request's target is not a path");
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)target[i];
        if (c <= 0x20 || c >= 0x7f || c == '#')
            return err_set(
                err, ERR_INVALID, EINVAL, "the request's target has characters that need %%XX");
    }
    return 0;
}

static enum MHD_Result look(void *context, enum MHD_ValueKind kind, const char *name,
    size_t name_len, const char *value, size_t value_len)
{
    struct findings *f = context;
    f->count++;
    if (!gate_header_ok(name, name_len, value ? value : "", value ? value_len : 0)) {
        f->is_bad = true;
        return MHD_NO;
    }
    for (size_t i = 0; i < SINGLES; i++)
        f->singles[i] += strcasecmp(name, single_names[i]) == 0;
    if (strcasecmp(name, single_names[LENGTH]) == 0) {
        f->has_bytes = value && strspn(value, "0") != value_len;
        f->bad_length = f->bad_length || !value || !value[0] ||
                        strspn(value, "0123456789") != value_len || value_len > 18;
    } else if (strcasecmp(name, single_names[CODING]) == 0) {
        f->other_coding = f->other_coding || !value || strcasecmp(value, "chunked") != 0;
    }
    return MHD_YES;
}

static const char *problem_of(const struct findings *f, bool is_1_1)
{
    if (f->is_bad)
        return "a header has a name that is no token or a value with control characters";
    if (is_1_1 && f->singles[HOST] == 0)
        return "the Host header is missing";
    if (f->other_coding)
        return "the transfer encoding is not `chunked`";
    if (f->singles[LENGTH] && f->singles[CODING])
        return "there are Content-Length and Transfer-Encoding";
    if (f->bad_length)
        return "the content length is not a number";
    if (!is_1_1 && f->singles[CODING])
        return "HTTP/1.0 has no transfer encoding";
    return NULL;
}

int gate_check(struct http_request *req, const char *version, struct err *err)
{
    struct findings f = {0};
    bool is_1_1 = str_eq(version, "HTTP/1.1");
    /* Until the headers are checked: a refusal then closes the connection. */
    req->declares_body = true;
    if (!is_1_1 && !str_eq(version, "HTTP/1.0"))
        return err_set(err, ERR_INVALID, EINVAL, "the HTTP version is not 1.1");
    int r = gate_check_target(req->target, err);
    if (r < 0)
        return r;
    (void)MHD_get_connection_values_n(req->mhd, MHD_HEADER_KIND, look, &f);
    if (f.count > HEADERS_MAX)
        return err_set(
            err, ERR_HEADERS_TOO_LARGE, E2BIG, "there are more than %d headers", HEADERS_MAX);
    for (size_t i = 0; i < SINGLES; i++) {
        if (f.singles[i] > 1)
            return err_set(
                err, ERR_INVALID, EBADMSG, "there is more than one %s header", single_names[i]);
    }
    const char *why = problem_of(&f, is_1_1);
    if (why)
        return err_set(err, ERR_INVALID, EBADMSG, "%s", why);
    req->declares_body = f.has_bytes || f.singles[CODING];
    return 0;
}
