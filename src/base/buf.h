/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Growable bytes with a mandatory maximum, for everything whose size a stranger chooses. An
 * append that does not fit stores nothing and returns -EMSGSIZE; the buffer stays usable.
 * -ENOMEM means that the host has no memory or that the purse refused. */

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Counts the memory of buffers. `take` is called before bytes are allocated and may refuse;
 * `give` is called after bytes were freed. base/ledger.h implements it. */
struct buf_purse {
    bool (*take)(struct buf_purse *purse, size_t bytes);
    void (*give)(struct buf_purse *purse, size_t bytes);
};

struct buf {
    char *data; /* NUL-terminated whenever not NULL */
    size_t len;
    size_t cap;
    size_t max;              /* most bytes it may hold, without the NUL */
    struct buf_purse *purse; /* set between buf_init() and the first byte, or NULL */
    bool is_starved;         /* memory for data within max was refused */
};

void buf_init(struct buf *b, size_t max);
void buf_done(struct buf *b); /* accepts a zeroed struct */
void buf_clear(struct buf *b);
int buf_append(struct buf *b, const void *data, size_t len);
int buf_append_str(struct buf *b, const char *s);
int buf_printf(struct buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Appends as many bytes as fit, and returns their number (less than len when the buffer is
 * full). */
size_t buf_append_some(struct buf *b, const void *data, size_t len);

/* One read(2) of at most `want` (> 0) bytes, never past max. Returns bytes read, 0 at end of
 * file, -EMSGSIZE when full, or negative errno (-EAGAIN included). */
ssize_t buf_read_fd(struct buf *b, int fd, size_t want);

/* Hands the bytes over. The caller frees them, and the purse no longer counts them. The buffer
 * is empty afterwards. Never returns NULL. */
char *buf_take(struct buf *b, size_t *ret_len);

#define cleanup_buf __attribute__((cleanup(buf_done)))
