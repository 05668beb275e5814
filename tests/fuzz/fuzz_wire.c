/* SPDX-License-Identifier: Apache-2.0 */

/* The reader of requests. Whatever the bytes, and however they are split, the same requests or
 * the same error come out. What is accepted is framed in one way, and nothing is read after an
 * error. The first byte of the input seeds the split. */

#include "http/wire.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

struct source {
    const uint8_t *data;
    size_t size, at;
    uint32_t seed; /* 0: everything at once */
};

static ssize_t fill(void *context, char *to, size_t max)
{
    struct source *s = context;
    size_t n = s->size - s->at < max ? s->size - s->at : max;
    if (s->seed) {
        s->seed = s->seed * 1664525u + 1013904223u;
        size_t most = 1 + (s->seed >> 24) % 7;
        n = n < most ? n : most;
    }
    memcpy(to, s->data + s->at, n);
    s->at += n;
    return (ssize_t)n;
}

/* What came out: a hash of all parts, and how it ended. */
struct outcome {
    uint64_t hash;
    unsigned requests;
    enum err_code code;
    char message[sizeof(((struct err *)0)->message)];
};

static void add(struct outcome *o, const void *data, size_t len)
{
    for (size_t i = 0; i < len; i++)
        o->hash = (o->hash ^ ((const unsigned char *)data)[i]) * 1099511628211u;
}

static void add_text(struct outcome *o, const char *text)
{
    add(o, text, strlen(text) + 1);
}

static unsigned count(const struct wire_head *head, const char *name)
{
    unsigned found = 0;
    for (unsigned i = 0; i < head->count; i++)
        found += strcasecmp(head->headers[i].name, name) == 0;
    return found;
}

static void check_head(const struct wire_head *head, struct outcome *o)
{
    unsigned lengths = count(head, "Content-Length");
    unsigned codings = count(head, "Transfer-Encoding");
    unsigned hosts = count(head, "Host");
    if (hosts > 1 || (head->is_1_1 && hosts == 0) || lengths + codings > 1 ||
        head->is_chunked != (codings == 1) || (head->length && lengths == 0) ||
        (!head->is_1_1 && (codings || !head->is_last)) || head->target[0] != '/' ||
        strpbrk(head->target, " \t\r\n"))
        abort();
    add_text(o, head->method);
    add_text(o, head->target);
    for (unsigned i = 0; i < head->count; i++) {
        if (strpbrk(head->headers[i].name, " \t\r\n:") ||
            strpbrk(head->headers[i].value, "\r\n"))
            abort();
        add_text(o, head->headers[i].name);
        add_text(o, head->headers[i].value);
    }
}

static int read_one(struct wire *w, struct outcome *o, struct err *err)
{
    uint64_t total = 0;
    int r = wire_read_head(w, err);
    if (r < 0)
        return r;
    check_head(&w->head, o);
    for (;;) {
        const char *data;
        ssize_t n = wire_read_body(w, &data, err);
        if (n < 0)
            return (int)n;
        if (n == 0)
            break;
        total += (uint64_t)n;
        add(o, data, (size_t)n);
    }
    if (!wire_is_done(w) || (!w->head.is_chunked && total != w->head.length))
        abort();
    o->requests++;
    return 0;
}

static struct outcome read_all(const uint8_t *data, size_t size, uint32_t seed)
{
    struct source source = {.data = data, .size = size, .seed = seed};
    struct outcome o = {.hash = 14695981039346656037u};
    struct wire *w = malloc(sizeof(*w));
    struct err err = {0};
    wire_init(w, fill, &source);
    while (wire_begin(w) > 0) {
        if (read_one(w, &o, &err) == 0)
            continue;
        if (err.code == ERR_NONE || !err.message[0] || wire_is_done(w))
            abort(); /* nothing but the bytes can be wrong here */
        const char *rest;
        struct err ignored = {0};
        if (wire_read_body(w, &rest, &ignored) >= 0)
            abort();
        break;
    }
    o.code = err.code;
    memcpy(o.message, err.message, sizeof(o.message));
    free(w);
    return o;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    struct outcome whole = read_all(data + 1, size - 1, 0);
    struct outcome split = read_all(data + 1, size - 1, 1u + data[0]);
    if (whole.hash != split.hash || whole.requests != split.requests ||
        whole.code != split.code || strcmp(whole.message, split.message) != 0)
        abort();
    return 0;
}
