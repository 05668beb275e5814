/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Takes a value out of a stream, wherever its pieces are split. Each byte of the value becomes
 * '*', so every length in the stream stays true.
 *
 * A box may choose what a server repeats, and watch when and in which pieces it comes back. So
 * neither the pieces nor the time may depend on how much of the value a text has: always the
 * same number of bytes waits for what follows, and every byte costs the same. */

#include "base/buf.h"

#include <stdint.h>

enum { SCRUB_MIN = 16, SCRUB_MAX = 4096 }; /* bytes of a value */

struct scrub {
    const char *value; /* borrowed */
    size_t len;
    uint64_t goal;   /* hash of the value */
    uint64_t weight; /* of the first byte in a hash */
    uint64_t hash;   /* of the last `filled` bytes, fewer than len */
    size_t filled;
    struct buf pending; /* the last len - 1 bytes: a value may begin in them */
};

/* The value has SCRUB_MIN to SCRUB_MAX bytes. */
void scrub_init(struct scrub *s, const char *value, size_t len);
void scrub_done(struct scrub *s); /* accepts a zeroed struct */

/* Appends all but the last len - 1 bytes of the stream to `to`. */
int scrub_feed(struct scrub *s, const char *data, size_t len, struct buf *to);

/* The stream has ended: appends the rest. */
int scrub_flush(struct scrub *s, struct buf *to);

/* The same in a text that is whole. */
void scrub_text(const struct scrub *s, char *text, size_t len);
