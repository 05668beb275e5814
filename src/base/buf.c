/* SPDX-License-Identifier: Apache-2.0 */

/* Bounded bytes. Everything whose size a stranger chooses is held in one of these buffers, so
 * the code that creates a buffer also sets the ceiling of its memory use. Capacity doubles up
 * to the ceiling and always has room for a NUL past the last byte. Exhaustion is an error here
 * and does not end the program, because a large maximum is legitimate and may not be
 * available. */

#include "base/buf.h"

#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"

enum {
    MIN_CAP = 64,
    /* Bytes. The most room that read(2) is given, so that a small answer on a descriptor does
     * not cost a buffer of the maximum size. */
    MAX_READ = 1 << 20,
};

static void give(struct buf *b, size_t bytes)
{
    if (b->purse && bytes)
        b->purse->give(b->purse, bytes);
}

/* Makes room for len more bytes and the NUL. The caller has checked len against the maximum. */
static int reserve(struct buf *b, size_t len)
{
    size_t need = b->len + len + 1;

    if (need <= b->cap)
        return 0;

    size_t cap = b->cap <= b->max / 2 ? b->cap * 2 : b->max + 1;
    if (cap < MIN_CAP)
        cap = MIN_CAP;
    if (cap < need)
        cap = need;
    if (b->purse && !b->purse->take(b->purse, cap - b->cap)) {
        b->is_starved = true;
        return -ENOMEM;
    }
    char *data = realloc(b->data, cap);
    if (!data) {
        give(b, cap - b->cap);
        b->is_starved = true;
        return -ENOMEM;
    }
    b->data = data;
    b->cap = cap;
    b->data[b->len] = '\0';
    return 0;
}

static size_t room(const struct buf *b)
{
    return b->max - b->len;
}

void buf_init(struct buf *b, size_t max)
{
    /* No object is larger than PTRDIFF_MAX, and this keeps len + 1 from wrapping. */
    if (max > (size_t)PTRDIFF_MAX - 1)
        max = (size_t)PTRDIFF_MAX - 1;
    *b = (struct buf){.max = max};
}

void buf_done(struct buf *b)
{
    if (!b)
        return;
    free(b->data);
    give(b, b->cap);
    *b = (struct buf){.max = b->max, .purse = b->purse, .is_starved = b->is_starved};
}

void buf_clear(struct buf *b)
{
    b->len = 0;
    if (b->data)
        b->data[0] = '\0';
}

int buf_append(struct buf *b, const void *data, size_t len)
{
    if (len > room(b))
        return -EMSGSIZE;
    if (len == 0)
        return 0;

    int r = reserve(b, len);
    if (r < 0)
        return r;
    memcpy(b->data + b->len, data, len);
    b->len += len;
    b->data[b->len] = '\0';
    return 0;
}

int buf_append_str(struct buf *b, const char *s)
{
    return buf_append(b, s, strlen(s));
}

size_t buf_append_some(struct buf *b, const void *data, size_t len)
{
    size_t fits = len < room(b) ? len : room(b);
    return buf_append(b, data, fits) < 0 ? 0 : fits;
}

int buf_printf(struct buf *b, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    int len = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    if (len < 0)
        return -EINVAL;
    if ((size_t)len > room(b))
        return -EMSGSIZE;

    int r = reserve(b, (size_t)len);
    if (r < 0)
        return r;
    va_start(args, fmt);
    (void)vsnprintf(b->data + b->len, (size_t)len + 1, fmt, args);
    va_end(args);
    b->len += (size_t)len;
    return 0;
}

ssize_t buf_read_fd(struct buf *b, int fd, size_t want)
{
    if (want == 0)
        return -EINVAL;
    if (room(b) == 0)
        return -EMSGSIZE;
    if (want > room(b))
        want = room(b);
    if (want > MAX_READ)
        want = MAX_READ;

    int r = reserve(b, want);
    if (r < 0)
        return r;
    ssize_t n;
    do {
        n = read(fd, b->data + b->len, want);
    } while (n < 0 && errno == EINTR);
    if (n < 0)
        n = -errno;
    else
        b->len += (size_t)n;
    b->data[b->len] = '\0';
    return n;
}

char *buf_take(struct buf *b, size_t *ret_len)
{
    char *data = b->data ? b->data : xstrdup("");

    if (ret_len)
        *ret_len = b->len;
    give(b, b->cap);
    b->data = NULL;
    b->len = 0;
    b->cap = 0;
    return data;
}
