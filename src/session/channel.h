/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The channel between the server and the interpreter of a session (docs/internals/kernels.md).
 * A frame is a line `KIND LENGTH` and LENGTH bytes, in both directions. Frames from the
 * interpreter are hostile: user code runs in the same process. */

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
    FRAME_INSTALL,
    FRAME_JOBS,
    FRAME_VARIABLES,
    FRAME_FORK,
    FRAME_ATTEMPT,
    FRAME_SETTLED,
    FRAME_DONE,
    FRAME_KINDS
};

enum { CHANNEL_FRAME_MAX = 16 << 20 }; /* bytes; the limit in docs/internals/kernels.md */

struct channel {
    int fd; /* borrowed, non-blocking */
    struct buf in;
    size_t in_at; /* bytes before this index are consumed */
    struct buf out;
    size_t out_at;
};

struct channel_frame {
    enum channel_kind kind;
    const char *data; /* valid until the next call on this channel */
    size_t len;
};

void channel_init(struct channel *c, int fd, struct buf_purse *purse); /* purse may be NULL */
void channel_done(struct channel *c);

/* channel_queue() appends a frame to the output buffer: -ENOMEM or -EMSGSIZE when it has no
 * room. channel_write() sends what the socket takes without blocking: -EPIPE when the
 * interpreter has closed the channel. */
int channel_queue(struct channel *c, const char *kind, const void *data, size_t len);
int channel_write(struct channel *c);
bool channel_has_more(const struct channel *c); /* output that is not sent yet */

/* Reads once: 1, 0 when there is nothing to read now, -EPIPE at end of file, -ENOMEM when there
 * is no memory for the data (the caller can try again). */
int channel_read(struct channel *c);

/* Takes the next complete frame: 1, 0 when it is not complete yet, -EBADMSG when the data is
 * not a valid frame. */
int channel_next(struct channel *c, struct channel_frame *ret);

/* Sends the queued frames and waits for the next complete frame: 0, -ETIMEDOUT after wait_ms,
 * or an error of the functions above. No other thread may read from the channel meanwhile. */
int channel_await(struct channel *c, uint64_t wait_ms, struct channel_frame *ret);

/* Whether no received byte is left over: every one belongs to a frame that was taken. */
bool channel_is_clean(const struct channel *c);

/* Frees the memory that large frames needed. */
void channel_rest(struct channel *c);
