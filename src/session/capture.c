/* SPDX-License-Identifier: Apache-2.0 */

/* See capture.h. */

#include "session/capture.h"

#include "base/alloc.h"
#include "base/utf8.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NOTICE_ROOM = 96 };

void capture_init(struct capture *c, size_t max)
{
    *c = (struct capture){.max = max, .tail_max = max - max / 5 * 2};
    buf_init(&c->head, max / 5 * 2);
}

void capture_done(struct capture *c)
{
    buf_done(&c->head);
    free(c->tail);
    *c = (struct capture){0};
}

static void add_tail(struct capture *c, const char *data, size_t len)
{
    if (!c->tail && !(c->tail = malloc(c->tail_max)))
        return; /* as if it had been left out */
    if (len > c->tail_max) {
        data += len - c->tail_max;
        len = c->tail_max;
    }
    size_t first = c->tail_max - c->tail_at < len ? c->tail_max - c->tail_at : len;
    memcpy(c->tail + c->tail_at, data, first);
    memcpy(c->tail, data + first, len - first);
    c->tail_at = (c->tail_at + len) % c->tail_max;
    c->tail_len = c->tail_max - c->tail_len < len ? c->tail_max : c->tail_len + len;
}

void capture_add(struct capture *c, const char *data, size_t len)
{
    size_t kept = buf_append_some(&c->head, data, len);
    c->total += len;
    if (kept < len)
        add_tail(c, data + kept, len - kept);
}

bool capture_is_cut(const struct capture *c)
{
    return c->total > c->head.len + c->tail_len;
}

/* Copies the ring in order. */
static size_t copy_tail(const struct capture *c, char *to)
{
    size_t begin = c->tail_len < c->tail_max ? 0 : c->tail_at;
    size_t first = c->tail_max - begin < c->tail_len ? c->tail_max - begin : c->tail_len;
    if (c->tail_len) {
        memcpy(to, c->tail + begin, first);
        memcpy(to + first, c->tail, c->tail_len - first);
    }
    return c->tail_len;
}

/* Bytes at the beginning of data that belong to a code point which began before it. */
static size_t broken_begin(const char *data, size_t len)
{
    size_t n = 0;
    while (n < len && n < 3 && ((unsigned char)data[n] & 0xc0) == 0x80)
        n++;
    return n;
}

char *capture_text(const struct capture *c, size_t *ret_len)
{
    char *text = xmalloc(c->head.len + c->tail_len + NOTICE_ROOM);
    size_t len = c->head.len;
    if (len)
        memcpy(text, c->head.data, len);
    if (!capture_is_cut(c)) {
        *ret_len = len + copy_tail(c, text + len);
        return text;
    }
    len = utf8_floor(text, len);
    char *tail = text + c->head.len + NOTICE_ROOM;
    size_t tail_len = copy_tail(c, tail);
    size_t skip = broken_begin(tail, tail_len);
    uint64_t missing = c->total - len - (tail_len - skip);
    len += (size_t)snprintf(text + len, NOTICE_ROOM / 2, "\n[... %llu bytes left out ...]\n",
        (unsigned long long)missing);
    memmove(text + len, tail + skip, tail_len - skip);
    *ret_len = len + tail_len - skip;
    return text;
}
