/* SPDX-License-Identifier: Apache-2.0 */

/* See terminal_link.h. */

#include "proto/terminal_link.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    HEAD = 4,
    NUMBER = 4,
    PIECE = 16 << 10,
    OUT_MAX = 4 * TERMINAL_WINDOW, /* our bytes, and messages about bytes of the other end */
};

void terminal_link_init(struct terminal_link *l, int talk_fd, int bytes_fd)
{
    *l = (struct terminal_link){.talk_fd = talk_fd, .bytes_fd = bytes_fd};
    buf_init(&l->in, (size_t)2 * (HEAD + PIECE));
    buf_init(&l->out, OUT_MAX);
    buf_init(&l->bytes, TERMINAL_WINDOW);
}

short terminal_link_talk_events(const struct terminal_link *l)
{
    bool has_room = l->out.len < OUT_MAX / 2 && l->in.len < HEAD + PIECE;
    return (short)((has_room ? POLLIN : 0) | (l->out.len ? POLLOUT : 0));
}

short terminal_link_bytes_events(const struct terminal_link *l)
{
    bool has_room = l->out.len < OUT_MAX / 2 && l->unconfirmed < TERMINAL_WINDOW;
    return (short)((has_room ? POLLIN : 0) | (l->bytes.len ? POLLOUT : 0));
}

static uint32_t number_at(const char *data, size_t len)
{
    uint32_t value = 0;
    for (size_t i = 0; i < len; i++)
        value = value << 8 | (unsigned char)data[i];
    return value;
}

/* OUT_MAX has room: nothing is read while more than half of it is used. */
static void queue(struct terminal_link *l, char kind, const char *data, size_t len)
{
    const char head[HEAD] = {kind, (char)(len >> 16), (char)(len >> 8), (char)len};
    if (buf_append(&l->out, head, HEAD) == 0)
        (void)buf_append(&l->out, data, len);
}

void terminal_link_say(struct terminal_link *l, char kind, uint32_t value)
{
    const char number[NUMBER] = {
        (char)(value >> 24), (char)(value >> 16), (char)(value >> 8), (char)value};
    queue(l, kind, number, NUMBER);
}

void terminal_link_send(struct terminal_link *l, const char *data, size_t len)
{
    queue(l, TERMINAL_BYTES, data, len);
    l->unconfirmed += len;
}

static int end_of(ssize_t n)
{
    return n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR) ? -EPIPE : 0;
}

int terminal_link_read_talk(struct terminal_link *l)
{
    ssize_t n = buf_read_fd(&l->in, l->talk_fd, PIECE);
    return n == 0 || (n < 0 && n != -EAGAIN && n != -EINTR) ? -EPIPE : 0;
}

int terminal_link_read_bytes(struct terminal_link *l)
{
    char piece[PIECE];
    size_t room = TERMINAL_WINDOW - l->unconfirmed;
    if (room == 0)
        return 0;
    ssize_t n = read(l->bytes_fd, piece, room < PIECE ? room : PIECE);
    if (n > 0)
        terminal_link_send(l, piece, (size_t)n);
    return end_of(n);
}

static void drop(struct buf *b, size_t len)
{
    b->len -= len;
    memmove(b->data, b->data + len, b->len);
}

int terminal_link_next(struct terminal_link *l, char *ret_kind, uint32_t *ret_value)
{
    while (l->in.len >= HEAD) {
        const char *payload = l->in.data + HEAD;
        size_t len = number_at(l->in.data + 1, HEAD - 1);
        char kind = l->in.data[0];
        if (len > PIECE || (kind != TERMINAL_BYTES && len != NUMBER))
            return -EPROTO;
        if (l->in.len < HEAD + len)
            return 0;
        uint32_t value = number_at(payload, kind == TERMINAL_BYTES ? 0 : NUMBER);
        /* A sender that keeps to its window always finds room. */
        if (kind == TERMINAL_BYTES && buf_append(&l->bytes, payload, len) < 0)
            return -EPROTO;
        if (kind == TERMINAL_TAKEN && value > l->unconfirmed)
            return -EPROTO;
        if (kind == TERMINAL_TAKEN)
            l->unconfirmed -= value;
        drop(&l->in, HEAD + len);
        if (kind == TERMINAL_BYTES || kind == TERMINAL_TAKEN)
            continue;
        *ret_kind = kind;
        *ret_value = value;
        return 1;
    }
    return 0;
}

void terminal_link_write(struct terminal_link *l)
{
    ssize_t n = l->bytes.len ? write(l->bytes_fd, l->bytes.data, l->bytes.len) : 0;
    if (n < 0 && end_of(n) < 0)
        n = (ssize_t)l->bytes.len; /* lost, as on any closed terminal */
    if (n > 0) {
        drop(&l->bytes, (size_t)n);
        terminal_link_say(l, TERMINAL_TAKEN, (uint32_t)n);
    }
    n = l->out.len ? write(l->talk_fd, l->out.data, l->out.len) : 0;
    if (n > 0)
        drop(&l->out, (size_t)n);
}
