/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Frames of a plug-in (docs/internals/plugins.md): what a program of the operator's says on its
 * stdout. Its bytes are a stranger's. The reader keeps the order of the conversation: an answer
 * that nobody asked for, or bytes of a stream that was not started, break it. */

#include "base/buf.h"
#include "base/err.h"
#include "proto/place.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    PLUGIN_PROTOCOL = 1,
    PLUGIN_HEAD = 32,            /* of a line KIND LENGTH */
    PLUGIN_FRAME_MAX = 16 << 20, /* of `data` */
    PLUGIN_JSON_MAX = 64 << 10,
    PLUGIN_WORDS = 400, /* of a message for people */
};

enum plugin_kind {
    PLUGIN_NONE,
    PLUGIN_READY,
    PLUGIN_OPENED,
    PLUGIN_OK,
    PLUGIN_DATA,
    PLUGIN_ENDED,
    PLUGIN_ERROR,
    PLUGIN_KINDS
};

struct plugin_reader {
    enum plugin_kind awaited; /* the answer to the last request; PLUGIN_NONE: there is none */
    bool is_streaming;        /* between the `ok` of `stream` and `ended` */
    char head[PLUGIN_HEAD];
    size_t head_len;
    enum plugin_kind kind; /* of the frame that has begun */
    size_t left;           /* bytes of it that are to come */
    struct buf json;
    char problem[128]; /* why the order is broken */
};

void plugin_reader_init(struct plugin_reader *r);
void plugin_reader_done(struct plugin_reader *r);

/* Takes bytes up to the end of a frame, or of a piece of `data`. Returns how many it took, or
 * -EPROTO. *ret_kind is PLUGIN_NONE while a frame is not whole, PLUGIN_DATA with a piece of
 * these bytes as *ret_piece, or another kind, whose text is in r->json. */
ssize_t plugin_read(struct plugin_reader *r, const char *data, size_t len,
    enum plugin_kind *ret_kind, const char **ret_piece, size_t *ret_len);

/* The content of the frame `ready`. */
struct plugin_ready {
    char name[65];
    bool is_isolated;
    uint32_t enforced; /* a bit for each limit of plugin_limits */
};
enum { PLUGIN_CPU, PLUGIN_MEMORY, PLUGIN_DISK, PLUGIN_PIDS, PLUGIN_NETWORK, PLUGIN_LIMITS };
extern const char *const plugin_limits[PLUGIN_LIMITS];

/* These return 0, or -EPROTO with a reason in `words`. The text is a whole frame. */
int plugin_parse_ready(
    const struct buf *text, struct plugin_ready *ret, char words[PLUGIN_WORDS]);
int plugin_parse_opened(const struct buf *text, bool *ret_resumed, char words[PLUGIN_WORDS]);
/* The kind of an error; the plug-in's message becomes `words`. */
enum place_error plugin_parse_error(const struct buf *text, char words[PLUGIN_WORDS]);
