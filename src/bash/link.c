/* SPDX-License-Identifier: Apache-2.0 */

/* See link.h. */

#include "bash/link.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/os/fs.h"
#include "base/str.h"
#include "bash/frame.h"

enum {
    HELLO_MAX = 24,
    READ_STEP = 256 << 10,
    CONFIRM_STEP = 64 << 10, /* received bytes after which they are confirmed */
    FRAME_SPACE = FRAME_MAX + FRAME_KIND_MAX + 24,
};

void link_init(struct link *l)
{
    *l = (struct link){.in_fd = -1, .out_fd = -1, .listen_fd = -1, .alone_ms = clock_ms()};
    buf_init(&l->hello, HELLO_MAX);
    buf_init(&l->in, (size_t)FRAME_SPACE + READ_STEP);
    /* One frame of the kernel may go beyond the ring. */
    buf_init(&l->out, (size_t)2 * LINK_RING + FRAME_SPACE);
}

void link_disconnect(struct link *l)
{
    if (l->out_fd != l->in_fd)
        close_fd(&l->out_fd);
    l->out_fd = -1;
    close_fd(&l->in_fd);
    l->alone_ms = clock_ms();
}

void link_connect(struct link *l, int in_fd, int out_fd)
{
    char line[HELLO_MAX];
    link_disconnect(l);
    l->in_fd = in_fd;
    l->out_fd = out_fd;
    l->is_greeted = false;
    buf_clear(&l->hello);
    l->in_told = l->in_count;
    int n = snprintf(line, sizeof(line), "%llu\n", (unsigned long long)l->in_count);
    if (fs_write_all(out_fd, line, (size_t)n) < 0)
        link_disconnect(l);
}

void link_accept(struct link *l)
{
    struct ucred peer = {.uid = (uid_t)-1};
    socklen_t size = sizeof(peer);
    int fd = accept4(l->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0)
        return;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == geteuid())
        link_connect(l, fd, fd);
    else
        (void)close(fd);
}

void link_queue_raw(struct link *l, const void *data, size_t len)
{
    if (buf_append(&l->out, data, len) < 0)
        abort(); /* the callers stop reading at LINK_RING */
}

void link_queue(struct link *l, const char *kind, const void *data, size_t len)
{
    char head[FRAME_KIND_MAX + 24];
    int n = snprintf(head, sizeof(head), "%s %zu\n", kind, len);
    link_queue_raw(l, head, (size_t)n);
    if (len)
        link_queue_raw(l, data, len);
}

static void forget(struct link *l, size_t count)
{
    l->out.len -= count;
    memmove(l->out.data, l->out.data + count, l->out.len);
    l->out_base += count;
    l->out_at = l->out_at > count ? l->out_at - count : 0;
}

int link_confirm(struct link *l, uint64_t count)
{
    if (count > l->out_base + l->out.len)
        return -EPROTO;
    if (count > l->out_base)
        forget(l, (size_t)(count - l->out_base));
    return 0;
}

void link_write(struct link *l)
{
    while (link_has_more(l)) {
        ssize_t n = write(l->out_fd, l->out.data + l->out_at, l->out.len - l->out_at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno != EAGAIN)
            link_disconnect(l);
        if (n <= 0)
            break;
        l->out_at += (size_t)n;
    }
    /* A fixed stream has no second connection to send anything again. */
    if (l->listen_fd < 0 && (l->out_at == l->out.len || l->out_at > LINK_RING / 2))
        forget(l, l->out_at);
}

/* Takes the other side's first line; what follows it belongs to the stream. */
static int take_hello(struct link *l)
{
    uint64_t count;
    char byte;
    while (!l->is_greeted) {
        ssize_t n = read(l->in_fd, &byte, 1);
        if (n <= 0)
            return n < 0 && (errno == EAGAIN || errno == EINTR) ? 0 : -EPIPE;
        if (byte != '\n') {
            if (buf_append(&l->hello, &byte, 1) < 0)
                return -EPROTO;
            continue;
        }
        if (!l->hello.len || str_parse_u64(l->hello.data, &count) < 0 || count < l->out_base ||
            link_confirm(l, count) < 0)
            return -EPROTO;
        l->out_at = 0;
        l->is_greeted = true;
    }
    return 0;
}

void link_read(struct link *l)
{
    if (l->in_fd < 0)
        return;
    if (!l->is_greeted) {
        if (take_hello(l) < 0)
            link_disconnect(l);
        return;
    }
    ssize_t n = buf_read_fd(&l->in, l->in_fd, READ_STEP);
    if (n == -EAGAIN || n == -EINTR)
        return;
    if (n <= 0) {
        link_disconnect(l);
        return;
    }
    l->in_count += (uint64_t)n;
    l->alone_ms = clock_ms();
    if (l->listen_fd >= 0 && l->in_count - l->in_told >= CONFIRM_STEP) {
        char number[24];
        int len = snprintf(number, sizeof(number), "%llu", (unsigned long long)l->in_count);
        link_queue(l, "ack", number, (size_t)len);
        l->in_told = l->in_count;
    }
}

bool link_has_more(const struct link *l)
{
    return l->out_fd >= 0 && l->is_greeted && l->out_at < l->out.len;
}

bool link_is_full(const struct link *l)
{
    return l->out.len >= LINK_RING;
}

bool link_is_connected(const struct link *l)
{
    return l->in_fd >= 0;
}
