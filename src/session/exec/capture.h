/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Keeps the beginning and the end of a stream of unknown length. The bytes between them are
 * counted and dropped. */

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

struct capture {
    struct buf head;
    char *tail; /* a ring of tail_max bytes, allocated when the head is full */
    size_t tail_max;
    size_t tail_len;
    size_t tail_at; /* index of the next byte to write */
    size_t max;
    uint64_t total;          /* bytes received */
    struct buf_purse *purse; /* or NULL */
};

/* Keeps at most `max` bytes: two fifths from the beginning, the rest from the end. Bytes for
 * which the purse (or NULL) has no room are dropped. */
void capture_init(struct capture *c, size_t max, struct buf_purse *purse);
void capture_done(struct capture *c);
void capture_add(struct capture *c, const char *data, size_t len);

/* Whether bytes were dropped. */
bool capture_is_cut(const struct capture *c);

/* Fills in `pieces` in order. When bytes were dropped, a line between both ends gives their
 * number, and both ends are cut between code points. The pieces point into the capture and into
 * `notice`. */
enum { CAPTURE_PIECES = 4, CAPTURE_NOTICE = 64 };
void capture_pieces(
    const struct capture *c, char notice[CAPTURE_NOTICE], struct iovec pieces[CAPTURE_PIECES]);
