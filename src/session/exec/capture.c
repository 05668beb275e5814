/* SPDX-License-Identifier: Apache-2.0 */

/* See capture.h. */

#include "session/exec/capture.h"

#include "base/utf8.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void capture_init(struct capture *c, size_t max, struct buf_purse *purse)
{
    *c = (struct capture){.max = max, .tail_max = max - max / 5 * 2, .purse = purse};
    buf_init(&c->head, max / 5 * 2);
    c->head.purse = purse;
}

void capture_done(struct capture *c)
{
    buf_done(&c->head);
    if (c->tail && c->purse)
        c->purse->give(c->purse, c->tail_max);
    free(c->tail);
    *c = (struct capture){0};
}

/* Allocates the ring. False without memory. */
static bool make_tail(struct capture *c)
{
    if (c->purse && !c->purse->take(c->purse, c->tail_max))
        return false;
    c->tail = malloc(c->tail_max);
    if (!c->tail && c->purse)
        c->purse->give(c->purse, c->tail_max);
    return c->tail;
}

static void add_tail(struct capture *c, const char *data, size_t len)
{
    if (!c->tail && !make_tail(c))
        return; /* counted as dropped */
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

static struct iovec piece(const char *data, size_t len)
{
    return (struct iovec){.iov_base = (void *)data, .iov_len = len};
}

/* Removes bytes from the beginning of the ring that belong to a code point cut in two. Returns
 * their number. */
static size_t skip_broken(struct iovec *first, struct iovec *second)
{
    size_t n = 0;
    for (struct iovec *at = first; at && n < 3;) {
        const unsigned char *bytes = at->iov_base;
        if (at->iov_len == 0) {
            at = at == first ? second : NULL;
        } else if ((bytes[0] & 0xc0) == 0x80) {
            *at = piece((const char *)bytes + 1, at->iov_len - 1);
            n++;
        } else {
            break;
        }
    }
    return n;
}

void capture_pieces(
    const struct capture *c, char notice[CAPTURE_NOTICE], struct iovec pieces[CAPTURE_PIECES])
{
    size_t begin = c->tail_len < c->tail_max ? 0 : c->tail_at;
    size_t first = c->tail_max - begin < c->tail_len ? c->tail_max - begin : c->tail_len;
    const char *tail = c->tail ? c->tail : "";
    pieces[0] = piece(c->head.len ? c->head.data : "", c->head.len);
    pieces[1] = piece("", 0);
    pieces[2] = piece(tail + (c->tail ? begin : 0), first);
    pieces[3] = piece(tail, c->tail_len - first);
    if (!capture_is_cut(c))
        return;
    pieces[0].iov_len = utf8_floor(pieces[0].iov_base, c->head.len);
    size_t kept = pieces[0].iov_len + c->tail_len - skip_broken(&pieces[2], &pieces[3]);
    int len = snprintf(notice, CAPTURE_NOTICE, "\n[... %llu bytes left out ...]\n",
        (unsigned long long)(c->total - kept));
    pieces[1] = piece(notice, (size_t)len);
}
