/* SPDX-License-Identifier: Apache-2.0 */

/* See channel.h. */

#include "session/channel.h"

#include "base/clock.h"
#include "base/str.h"

#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    /* All sizes in bytes. */
    HEAD_MAX = 32, /* of a line `KIND LENGTH` */
    READ_STEP = 16 << 10,
    REST_BYTES = 16 << 10, /* larger buffers are freed between execs */
    OUT_MAX = 128 << 20,   /* code, stdin, tools and tool answers */
    STARVED_MS = 50
};

static const char *const kinds[FRAME_KINDS] = {
    [FRAME_READY] = "ready",
    [FRAME_RESULT] = "result",
    [FRAME_DISPLAY] = "display",
    [FRAME_ERROR] = "error",
    [FRAME_TOOL_CALL] = "tool_call",
    [FRAME_INSTALL] = "install",
    [FRAME_JOBS] = "jobs",
    [FRAME_VARIABLES] = "variables",
    [FRAME_FORK] = "fork",
    [FRAME_ATTEMPT] = "attempt",
    [FRAME_SETTLED] = "settled",
    [FRAME_DONE] = "done",
};

void channel_init(struct channel *c, int fd, struct buf_purse *purse)
{
    *c = (struct channel){.fd = fd};
    buf_init(&c->in, HEAD_MAX + CHANNEL_FRAME_MAX + READ_STEP);
    buf_init(&c->out, OUT_MAX);
    c->in.purse = c->out.purse = purse;
}

void channel_done(struct channel *c)
{
    buf_done(&c->in);
    buf_done(&c->out);
}

int channel_queue(struct channel *c, const char *kind, const void *data, size_t len)
{
    size_t before = c->out.len;
    int r = buf_printf(&c->out, "%s %zu\n", kind, len);
    if (r == 0 && len && (r = buf_append(&c->out, data, len)) < 0)
        c->out.len = before; /* half a frame would break the stream */
    return r;
}

int channel_write(struct channel *c)
{
    while (c->out_at < c->out.len) {
        ssize_t n = send(c->fd, c->out.data + c->out_at, c->out.len - c->out_at,
            MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno == EAGAIN ? 0 : -EPIPE;
        c->out_at += (size_t)n;
    }
    buf_clear(&c->out);
    c->out_at = 0;
    return 0;
}

bool channel_has_more(const struct channel *c)
{
    return c->out_at < c->out.len;
}

int channel_read(struct channel *c)
{
    if (c->in_at) {
        memmove(c->in.data, c->in.data + c->in_at, c->in.len - c->in_at);
        c->in.len -= c->in_at;
        c->in_at = 0;
    }
    ssize_t n = buf_read_fd(&c->in, c->fd, READ_STEP);
    if (n > 0)
        return 1;
    if (n == -ENOMEM)
        return -ENOMEM;
    return n == -EAGAIN || n == -EINTR ? 0 : -EPIPE;
}

/* Parses a head line without its newline: kind and announced length. */
static int parse_head(
    const char *line, size_t len, enum channel_kind *ret_kind, size_t *ret_len)
{
    char text[HEAD_MAX + 1];
    uint64_t size;
    memcpy(text, line, len);
    text[len] = '\0';
    char *space = strchr(text, ' ');
    if (!space || strlen(text) != len)
        return -EBADMSG;
    *space = '\0';
    if (str_parse_u64(space + 1, &size) < 0 || size > CHANNEL_FRAME_MAX)
        return -EBADMSG;
    for (unsigned i = 0; i < FRAME_KINDS; i++) {
        if (str_eq(kinds[i], text)) {
            *ret_kind = (enum channel_kind)i;
            *ret_len = (size_t)size;
            return 0;
        }
    }
    return -EBADMSG;
}

int channel_next(struct channel *c, struct channel_frame *ret)
{
    size_t have = c->in.len - c->in_at;
    const char *at = have ? c->in.data + c->in_at : "";
    const char *end = have ? memchr(at, '\n', have < HEAD_MAX ? have : HEAD_MAX) : NULL;
    if (!end)
        return have < HEAD_MAX ? 0 : -EBADMSG;
    size_t head = (size_t)(end - at) + 1;
    int r = parse_head(at, head - 1, &ret->kind, &ret->len);
    if (r < 0 || have - head < ret->len)
        return r;
    ret->data = at + head;
    c->in_at += head + ret->len;
    return 1;
}

int channel_await(struct channel *c, uint64_t wait_ms, struct channel_frame *ret)
{
    uint64_t until_ms = clock_ms() + wait_ms;
    int r = channel_write(c);
    while (r == 0) {
        struct pollfd ready = {
            .fd = c->fd, .events = (short)(POLLIN | (channel_has_more(c) ? POLLOUT : 0))};
        uint64_t now = clock_ms();
        if (now >= until_ms || poll(&ready, 1, (int)(until_ms - now)) < 0)
            return -ETIMEDOUT;
        if (ready.revents & POLLOUT)
            r = channel_write(c);
        if (r == 0 && ready.revents & ~POLLOUT && (r = channel_read(c)) >= 0)
            r = channel_next(c, ret);
        if (r == -ENOMEM)
            r = poll(NULL, 0, STARVED_MS);
    }
    return r < 0 ? r : 0;
}

bool channel_is_clean(const struct channel *c)
{
    return c->in_at == c->in.len;
}

void channel_rest(struct channel *c)
{
    if (channel_is_clean(c)) {
        buf_clear(&c->in);
        c->in_at = 0;
        if (c->in.cap > REST_BYTES)
            buf_done(&c->in);
    }
    if (!channel_has_more(c) && c->out.cap > REST_BYTES)
        buf_done(&c->out);
}
