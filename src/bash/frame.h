/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Frames of a session's channel (docs/internals/kernels.md): a line "KIND LENGTH\n" and LENGTH
 * bytes. */

#include <stddef.h>

#include "base/buf.h"

/* In bytes, as docs/internals/kernels.md says. */
enum { FRAME_MAX = 16 << 20, FRAME_KIND_MAX = 16 };

struct frame {
    char kind[FRAME_KIND_MAX + 1];
    const char *payload; /* points into the buffer; valid until frame_drop() */
    size_t len;
    size_t whole; /* bytes including the header */
};

/* Returns 1 when b begins with a complete frame, 0 when more bytes are needed, -EPROTO when it
 * is not a frame. */
int frame_parse(const struct buf *b, struct frame *ret_frame);
void frame_drop(struct buf *b, const struct frame *frame);

/* Returns negative errno when the server has closed the channel. */
int frame_send(int fd, const char *kind, const struct buf *payload);

/* Appends text as an ASCII JSON string. Invalid UTF-8 becomes U+FFFD. */
int json_append(struct buf *b, const char *text, size_t len);
