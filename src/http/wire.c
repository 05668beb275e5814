/* SPDX-License-Identifier: Apache-2.0 */

/* See wire.h. Lines, bodies and chunks; wire_head.c has the grammar of the head. The head stays
 * at the start of the buffer while its body passes through the rest. */

#include "http/wire.h"

#include <errno.h>
#include <string.h>

void wire_init(struct wire *w, ssize_t (*fill)(void *, char *, size_t), void *context)
{
    w->fill = fill;
    w->context = context;
    w->state = WIRE_DONE;
    w->kept = w->at = w->len = 0;
}

bool wire_is_done(const struct wire *w)
{
    return w->state == WIRE_DONE;
}

bool wire_has_more(const struct wire *w)
{
    return w->at < w->len;
}

static int bad(struct err *err, const char *what)
{
    return err_set(err, ERR_INVALID, EBADMSG, "%s", what);
}

/* Gets more bytes behind the unread ones. The end of the connection is -ENODATA. */
static int fill(struct wire *w)
{
    if (w->at > w->kept) {
        memmove(w->bytes + w->kept, w->bytes + w->at, w->len - w->at);
        w->len -= w->at - w->kept;
        w->at = w->kept;
    }
    if (w->len == WIRE_BUFFER) /* the limits of lines prevent this */
        return -EMSGSIZE;
    ssize_t n = w->fill(w->context, w->bytes + w->len, WIRE_BUFFER - w->len);
    if (n <= 0)
        return n == 0 ? -ENODATA : (int)n;
    w->len += (size_t)n;
    return 0;
}

static int fill_or_refuse(struct wire *w, struct err *err)
{
    int r = fill(w);
    return r == -ENODATA ? bad(err, "the connection ended in the middle of the request") : r;
}

int wire_begin(struct wire *w)
{
    w->kept = 0;
    if (wire_has_more(w))
        return 1;
    w->at = w->len = 0;
    int r = fill(w);
    return r == 0 ? 1 : r == -ENODATA ? 0 : r;
}

/* Reads a line of at most `max` bytes, without its CR LF. Looks at each byte once and in order,
 * so that the result does not depend on how the bytes were split. Returns its length, -EMSGSIZE
 * without err when it is longer, or negative errno as wire_read_head(). */
static ssize_t read_line(struct wire *w, size_t max, char **ret, struct err *err)
{
    bool is_ending = false;
    for (size_t n = 0;; n++) {
        while (w->at + n == w->len) {
            int r = fill_or_refuse(w, err);
            if (r < 0)
                return r;
        }
        unsigned char c = (unsigned char)w->bytes[w->at + n];
        if (is_ending && c == '\n') {
            *ret = w->bytes + w->at;
            w->at += n + 1;
            return (ssize_t)n - 1;
        }
        if (is_ending || c == '\n')
            return bad(err, "a line does not end with CR LF");
        is_ending = c == '\r';
        if (!is_ending && ((c < 0x20 && c != '\t') || c == 0x7f))
            return bad(err, "a line has a control character");
        if (!is_ending && n == max)
            return -EMSGSIZE;
    }
}

static int read_request_line(struct wire *w, struct err *err)
{
    char *line;
    ssize_t n = read_line(w, WIRE_LINE_MAX, &line, err);
    if (n == -EMSGSIZE)
        return err_set(err, ERR_URI_TOO_LONG, ENAMETOOLONG,
            "the request's first line has more than %d bytes", WIRE_LINE_MAX);
    w->kept = w->at;
    return n < 0 ? (int)n : wire_parse_request(&w->head, line, (size_t)n, err);
}

static int read_headers(struct wire *w, struct err *err)
{
    for (;;) {
        char *line;
        /* `kept` is below WIRE_LINE_MAX after the first line and below WIRE_HEAD_MAX later. */
        ssize_t n = read_line(w, WIRE_HEAD_MAX - w->kept, &line, err);
        w->kept = w->at;
        if (n == -EMSGSIZE || w->kept > WIRE_HEAD_MAX)
            return err_set(err, ERR_HEADERS_TOO_LARGE, E2BIG,
                "the request's headers have more than %d bytes", WIRE_HEAD_MAX);
        if (n <= 0)
            return (int)n;
        if (w->head.count == WIRE_HEADERS_MAX)
            return err_set(err, ERR_HEADERS_TOO_LARGE, E2BIG, "there are more than %d headers",
                WIRE_HEADERS_MAX);
        int r = wire_parse_header(&w->head, line, (size_t)n, err);
        if (r < 0)
            return r;
    }
}

int wire_read_head(struct wire *w, struct err *err)
{
    /* The bytes of the request before, which wire_begin() left in front. */
    memmove(w->bytes, w->bytes + w->at, w->len - w->at);
    w->len -= w->at;
    w->at = w->kept = 0;
    w->extensions = w->trailers = 0;
    w->head.count = 0;
    w->state = WIRE_BROKEN;
    int r = read_request_line(w, err);
    if (r == 0)
        r = read_headers(w, err);
    if (r == 0)
        r = wire_frame(&w->head, err);
    if (r < 0)
        return r;
    w->left = w->head.length;
    w->state = w->head.is_chunked ? WIRE_SIZE : w->left ? WIRE_PLAIN : WIRE_DONE;
    return 0;
}

static int hex_of(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* "1a" or "1a;extension". White space around the size is refused: readers differ about it. */
static int parse_size(struct wire *w, const char *line, size_t len, struct err *err)
{
    size_t digits = 0;
    uint64_t size = 0;
    for (; digits < len && hex_of(line[digits]) >= 0; digits++) {
        if (digits == WIRE_CHUNK_DIGITS)
            return bad(err, "the size of a chunk has too many digits");
        size = size << 4 | (unsigned)hex_of(line[digits]);
    }
    if (digits == 0 || (digits < len && line[digits] != ';'))
        return bad(err, "the size of a chunk is not a hexadecimal number");
    w->extensions += len - digits;
    if (w->extensions > WIRE_EXTENSIONS_MAX)
        return bad(err, "the chunks have too many bytes of extensions");
    w->left = size;
    return 0;
}

/* Trailers have no meaning here, but must be well-formed. */
static int read_trailers(struct wire *w, struct err *err)
{
    for (;;) {
        struct wire_head ignored;
        char *line = NULL;
        ignored.count = 0;
        ssize_t n = read_line(w, WIRE_TRAILERS_MAX - w->trailers, &line, err);
        w->trailers += n > 0 ? (size_t)n : 0;
        if (n == -EMSGSIZE)
            return err_set(err, ERR_HEADERS_TOO_LARGE, E2BIG,
                "the trailers have more than %d bytes", WIRE_TRAILERS_MAX);
        if (n <= 0)
            return (int)n;
        int r = wire_parse_header(&ignored, line, (size_t)n, err);
        if (r < 0)
            return r;
    }
}

/* Reads from the end of a chunk to the start of the next one, or to the end of the body. */
static int next_chunk(struct wire *w, struct err *err)
{
    char *line = w->bytes;
    bool is_first = w->state == WIRE_SIZE;
    w->state = WIRE_BROKEN;
    ssize_t n = is_first ? 0 : read_line(w, 0, &line, err);
    if (n == -EMSGSIZE)
        return bad(err, "a chunk is longer than its size says");
    if (n < 0)
        return (int)n;
    n = read_line(w, WIRE_CHUNK_LINE_MAX, &line, err);
    if (n == -EMSGSIZE)
        return bad(err, "the line with the size of a chunk is too long");
    int r = n < 0 ? (int)n : parse_size(w, line, (size_t)n, err);
    if (r == 0 && w->left == 0)
        r = read_trailers(w, err);
    if (r == 0)
        w->state = w->left ? WIRE_CHUNK : WIRE_DONE;
    return r;
}

ssize_t wire_read_body(struct wire *w, const char **ret, struct err *err)
{
    int r = 0;
    if (w->state == WIRE_SIZE || w->state == WIRE_SIZE_CR)
        r = next_chunk(w, err);
    if (r < 0 || w->state == WIRE_DONE)
        return r;
    if (w->state == WIRE_BROKEN)
        return -EPROTO;
    if (!wire_has_more(w) && (r = fill_or_refuse(w, err)) < 0) {
        w->state = WIRE_BROKEN;
        return r;
    }
    size_t n = w->len - w->at < w->left ? w->len - w->at : (size_t)w->left;
    *ret = w->bytes + w->at;
    w->at += n;
    w->left -= n;
    if (w->left == 0)
        w->state = w->state == WIRE_CHUNK ? WIRE_SIZE_CR : WIRE_DONE;
    return (ssize_t)n;
}
