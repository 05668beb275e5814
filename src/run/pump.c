/* SPDX-License-Identifier: Apache-2.0 */

/* See pump.h. The caller's descriptors are shared with its shell and stay blocking. Therefore a
 * write is at most PIPE_BUF bytes, for which poll() guarantees room. */

#include "run/pump.h"

#include "base/cleanup.h"
#include "base/os/fs.h"

#include <errno.h>
#include <limits.h>
#include <unistd.h>

void pump_in_prepare(const struct pump_in *pump, struct pollfd *source, struct pollfd *box)
{
    bool empty = pump->at == pump->len;
    *source = (struct pollfd){
        .fd = pump->box_fd >= 0 && empty ? pump->source_fd : -1, .events = POLLIN};
    *box = (struct pollfd){.fd = pump->box_fd, .events = empty ? 0 : POLLOUT};
}

static void refill(struct pump_in *pump)
{
    ssize_t n = read(pump->source_fd, pump->buffer, PUMP_BUFFER);
    if (n > 0) {
        pump->at = 0;
        pump->len = (size_t)n;
    } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
        pump->source_fd = -1;
    }
}

void pump_in_move(struct pump_in *pump, const struct pollfd *source, const struct pollfd *box)
{
    if (pump->box_fd < 0)
        return;
    if (source->fd >= 0 && source->revents)
        refill(pump);
    if (box->revents & POLLOUT) {
        ssize_t n = write(pump->box_fd, pump->buffer + pump->at, pump->len - pump->at);
        if (n > 0)
            pump->at += (size_t)n;
    }
    /* The program closed its stdin, or all input was written. */
    if ((box->revents & (POLLERR | POLLNVAL)) || (pump->source_fd < 0 && pump->at == pump->len))
        close_fd(&pump->box_fd);
}

void pump_out_prepare(const struct pump_out *pump, const struct buf *from, struct pollfd *to)
{
    *to = (struct pollfd){.fd = pump->at < from->len ? pump->fd : -1, .events = POLLOUT};
}

void pump_out_move(struct pump_out *pump, const struct buf *from, const struct pollfd *to)
{
    if (to->fd < 0 || !to->revents)
        return;
    size_t left = from->len - pump->at;
    ssize_t n = write(pump->fd, from->data + pump->at, left < PIPE_BUF ? left : PIPE_BUF);
    if (n > 0) {
        pump->at += (size_t)n;
    } else if (n < 0 && errno != EAGAIN && errno != EINTR) {
        pump->error = -errno;
        pump->fd = -1;
    }
}

void pump_out_finish(struct pump_out *pump, const struct buf *from)
{
    if (pump->fd >= 0 && pump->at < from->len)
        pump->error = fs_write_all(pump->fd, from->data + pump->at, from->len - pump->at);
    pump->at = from->len;
}
