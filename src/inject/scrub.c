/* SPDX-License-Identifier: Apache-2.0 */

/* See scrub.h. The search is that of Rabin and Karp: a hash of as many bytes as the value has
 * moves over the stream. */

#include "inject/scrub.h"

#include <string.h>

static const uint64_t base = 0x9e3779b97f4a7c15u; /* odd; any would do */

enum { PENDING_MAX = 1 << 20 };

static uint64_t hash_add(uint64_t hash, char c)
{
    return hash * base + (unsigned char)c + 1;
}

void scrub_init(struct scrub *s, const char *value, size_t len)
{
    *s = (struct scrub){.value = value, .len = len, .weight = 1};
    for (size_t i = 0; i < len; i++) {
        s->goal = hash_add(s->goal, value[i]);
        s->weight *= i ? base : 1;
    }
    buf_init(&s->pending, PENDING_MAX);
}

void scrub_done(struct scrub *s)
{
    buf_done(&s->pending);
    *s = (struct scrub){0};
}

/* Looks at the bytes of a text from `from` on; the bytes before were seen. */
static void search(struct scrub *s, char *text, size_t from, size_t len)
{
    for (size_t i = from; i < len; i++) {
        s->hash = hash_add(s->hash, text[i]);
        if (++s->filled < s->len)
            continue;
        char *first = text + i + 1 - s->len;
        if (s->hash == s->goal && memcmp(first, s->value, s->len) == 0) {
            memset(first, '*', s->len);
            s->hash = s->filled = 0;
            continue;
        }
        s->hash -= ((unsigned char)*first + 1u) * s->weight;
        s->filled--;
    }
}

int scrub_feed(struct scrub *s, const char *data, size_t len, struct buf *to)
{
    struct buf *pending = &s->pending;
    size_t seen = pending->len;
    int r = buf_append(pending, data, len);
    if (r < 0 || pending->len == 0)
        return r;
    search(s, pending->data, seen, pending->len);
    size_t kept = pending->len < s->len - 1 ? pending->len : s->len - 1;
    size_t certain = pending->len - kept;
    r = buf_append(to, pending->data, certain);
    memmove(pending->data, pending->data + certain, kept);
    pending->len = kept;
    return r;
}

int scrub_flush(struct scrub *s, struct buf *to)
{
    int r = s->pending.len ? buf_append(to, s->pending.data, s->pending.len) : 0;
    buf_clear(&s->pending);
    s->hash = s->filled = 0;
    return r;
}

void scrub_text(const struct scrub *s, char *text, size_t len)
{
    struct scrub whole = *s;
    whole.hash = whole.filled = 0;
    search(&whole, text, 0, len);
}
