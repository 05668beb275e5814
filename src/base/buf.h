/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Growable bytes with a mandatory maximum: what a stranger sizes lives here. Once an append
 * does not fit, nothing of it is stored and -EMSGSIZE is returned; the buffer stays usable.
 * -ENOMEM when the host has no memory for it, or its purse has none left. */

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Counts what buffers take: `take` comes before the bytes are allocated and may refuse, `give`
 * after they were freed. base/ledger.h has one. */
struct buf_purse {
    bool (*take)(struct buf_purse *purse, size_t bytes);
    void (*give)(struct buf_purse *purse, size_t bytes);
};

struct buf {
    char *data; /* NUL-terminated whenever not NULL */
    size_t len;
    size_t cap;
    size_t max;              /* most bytes it may hold, without the NUL */
    struct buf_purse *purse; /* set it after buf_init() and before the first byte; or NULL */
    bool is_starved;         /* there was no memory for something that is within max */
};

void buf_init(struct buf *b, size_t max);
void buf_done(struct buf *b); /* accepts a zeroed struct */
void buf_clear(struct buf *b);
int buf_append(struct buf *b, const void *data, size_t len);
int buf_append_str(struct buf *b, const char *s);
int buf_printf(struct buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Appends as many bytes as fit; returns how many those were (fewer than len when full). */
size_t buf_append_some(struct buf *b, const void *data, size_t len);

/* One read(2) of at most `want` (> 0) bytes, never past max. Returns bytes read, 0 at end of
 * file, -EMSGSIZE when full, or negative errno (-EAGAIN included). */
ssize_t buf_read_fd(struct buf *b, int fd, size_t want);

/* Hands the bytes over; the caller frees, and counts them from now on. The buffer is empty
 * afterwards. Never NULL. */
char *buf_take(struct buf *b, size_t *ret_len);

#define cleanup_buf __attribute__((cleanup(buf_done)))
