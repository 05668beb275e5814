/* SPDX-License-Identifier: Apache-2.0 */

/* See plugin_frame.h. Bytes of a stream are handed on piece by piece. JSON is kept until its
 * frame is whole, and has a bound of its own. */

#include "backend/plugin_frame.h"

#include "base/cleanup.h"
#include "base/str.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const char *const kinds[PLUGIN_KINDS] = {
    [PLUGIN_READY] = "ready",
    [PLUGIN_OPENED] = "opened",
    [PLUGIN_OK] = "ok",
    [PLUGIN_DATA] = "data",
    [PLUGIN_ENDED] = "ended",
    [PLUGIN_ERROR] = "error",
};

void plugin_reader_init(struct plugin_reader *r)
{
    *r = (struct plugin_reader){.awaited = PLUGIN_READY};
    buf_init(&r->json, PLUGIN_JSON_MAX);
}

void plugin_reader_done(struct plugin_reader *r)
{
    buf_done(&r->json);
}

static bool is_in_order(const struct plugin_reader *r, enum plugin_kind kind)
{
    if (kind == PLUGIN_DATA || kind == PLUGIN_ENDED)
        return r->is_streaming;
    if (kind == PLUGIN_ERROR)
        return r->awaited != PLUGIN_NONE;
    return kind == r->awaited;
}

static int begin(struct plugin_reader *r)
{
    char text[PLUGIN_HEAD];
    uint64_t len = 0;
    memcpy(text, r->head, r->head_len - 1);
    text[r->head_len - 1] = '\0';
    char *space = strchr(text, ' ');
    bool is_whole = space && strlen(text) == r->head_len - 1 && !str_parse_u64(space + 1, &len);
    if (is_whole)
        *space = '\0';
    enum plugin_kind kind = PLUGIN_READY;
    while (is_whole && kind < PLUGIN_KINDS && !str_eq(kinds[kind], text))
        kind++;
    if (!is_whole || kind == PLUGIN_KINDS) {
        (void)snprintf(r->problem, sizeof(r->problem), "it sent bytes that are not a frame");
        return -EPROTO;
    }
    if (!is_in_order(r, kind)) {
        (void)snprintf(
            r->problem, sizeof(r->problem), "it sent `%s` when that is not allowed", text);
        return -EPROTO;
    }
    if (len > (kind == PLUGIN_DATA ? PLUGIN_FRAME_MAX : PLUGIN_JSON_MAX)) {
        (void)snprintf(r->problem, sizeof(r->problem), "its frame `%s` is too long", text);
        return -EPROTO;
    }
    r->kind = kind;
    r->left = (size_t)len;
    return 0;
}

/* After a whole answer: notes which frames may come next. */
static void end(struct plugin_reader *r, enum plugin_kind kind)
{
    if (kind == r->awaited || kind == PLUGIN_ERROR)
        r->awaited = PLUGIN_NONE;
    if (kind == PLUGIN_ENDED)
        r->is_streaming = false;
}

ssize_t plugin_read(struct plugin_reader *r, const char *data, size_t len,
    enum plugin_kind *ret_kind, const char **ret_piece, size_t *ret_len)
{
    size_t at = 0;
    *ret_kind = PLUGIN_NONE;
    while (r->kind == PLUGIN_NONE) {
        if (at == len)
            return (ssize_t)at;
        if (r->head_len == PLUGIN_HEAD) {
            (void)snprintf(
                r->problem, sizeof(r->problem), "it sent bytes that are not a frame");
            return -EPROTO;
        }
        r->head[r->head_len++] = data[at];
        if (data[at++] == '\n') {
            if (begin(r) < 0)
                return -EPROTO;
            buf_clear(&r->json);
        }
    }
    size_t piece = len - at < r->left ? len - at : r->left;
    if (r->kind == PLUGIN_DATA) {
        *ret_kind = piece ? PLUGIN_DATA : PLUGIN_NONE;
        *ret_piece = data + at;
        *ret_len = piece;
    } else if (piece && buf_append(&r->json, data + at, piece) < 0) {
        (void)snprintf(r->problem, sizeof(r->problem), "there is no memory for its frame");
        return -EPROTO;
    }
    r->left -= piece;
    if (r->left == 0) {
        if (r->kind != PLUGIN_DATA)
            *ret_kind = r->kind;
        end(r, r->kind);
        r->kind = PLUGIN_NONE;
        r->head_len = 0;
    }
    return (ssize_t)(at + piece);
}
