/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What is kept of a stream of unknown length: its beginning and its end. What lies between is
 * counted and left out. */

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
    size_t tail_at; /* where the next byte goes */
    size_t max;
    uint64_t total;          /* bytes that came */
    struct buf_purse *purse; /* or NULL */
};

/* Keeps at most max bytes: two fifths of the beginning, the rest of the end. What the purse (or
 * NULL) refuses is left out. */
void capture_init(struct capture *c, size_t max, struct buf_purse *purse);
void capture_done(struct capture *c);
void capture_add(struct capture *c, const char *data, size_t len);

/* Whether something had to be left out. */
bool capture_is_cut(const struct capture *c);

/* All of it in order, or both ends with a line between that tells how much is missing. Cut
 * between code points. The pieces lie in the capture and in `notice`. */
enum { CAPTURE_PIECES = 4, CAPTURE_NOTICE = 64 };
void capture_pieces(
    const struct capture *c, char notice[CAPTURE_NOTICE], struct iovec pieces[CAPTURE_PIECES]);
