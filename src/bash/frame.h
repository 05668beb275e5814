/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Frames of a session's channel (docs/internals/kernels.md): "KIND LENGTH\n" and LENGTH bytes.
 */

#include <stddef.h>

#include "base/buf.h"

enum { FRAME_MAX = 16 << 20, FRAME_KIND_MAX = 16 };

struct frame {
    char kind[FRAME_KIND_MAX + 1];
    const char *payload; /* points into the buffer, until frame_drop() */
    size_t len;
    size_t whole; /* bytes with the header */
};

/* 1 when b begins with a whole frame, 0 when more bytes are needed, -EPROTO when it never will.
 */
int frame_parse(const struct buf *b, struct frame *ret_frame);
void frame_drop(struct buf *b, const struct frame *frame);

/* Negative errno when the other side is gone. */
int frame_send(int fd, const char *kind, const struct buf *payload);

/* Appends text as a JSON string in ASCII; bytes that are no UTF-8 become U+FFFD. */
int json_append(struct buf *b, const char *text, size_t len);
