/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The channel between the server and the kernel of a session (docs/internals/kernels.md):
 * frames of a line `KIND LENGTH` and LENGTH bytes, both ways. What comes from the kernel is
 * hostile: user code lives in the same process. */

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum channel_kind {
    FRAME_READY,
    FRAME_RESULT,
    FRAME_DISPLAY,
    FRAME_ERROR,
    FRAME_TOOL_CALL,
    FRAME_JOBS,
    FRAME_FORK,
    FRAME_SETTLED,
    FRAME_DONE,
    FRAME_KINDS
};

enum { CHANNEL_FRAME_MAX = 16 << 20 };

struct channel {
    int fd; /* borrowed, does not block */
    struct buf in;
    size_t in_at; /* what lies before it was taken */
    struct buf out;
    size_t out_at;
};

struct channel_frame {
    enum channel_kind kind;
    const char *data; /* until the next call on this channel */
    size_t len;
};

void channel_init(struct channel *c, int fd, struct buf_purse *purse); /* or NULL */
void channel_done(struct channel *c);

/* Queues a frame; channel_write() sends what goes without waiting. -EPIPE when the kernel no
 * longer listens. */
int channel_queue(struct channel *c, const char *kind, const void *data, size_t len);
int channel_write(struct channel *c);
bool channel_has_more(const struct channel *c); /* to write */

/* Reads once: 1, 0 when nothing is there now, -EPIPE at the end, -ENOMEM when there is no
 * memory for what is there: it can be tried again. */
int channel_read(struct channel *c);

/* Takes the next whole frame: 1, 0 when there is none yet, -EBADMSG when this is no frame. */
int channel_next(struct channel *c, struct channel_frame *ret);

/* Sends what is queued and waits for the next whole frame: 0, -ETIMEDOUT when it is not there
 * within that time, or as above. Nothing else may wait for the kernel meanwhile. */
int channel_await(struct channel *c, uint64_t wait_ms, struct channel_frame *ret);

/* Whether bytes came that belong to no frame taken so far. */
bool channel_is_clean(const struct channel *c);

/* Gives back the memory of large frames. */
void channel_rest(struct channel *c);
