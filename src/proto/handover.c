/* SPDX-License-Identifier: Apache-2.0 */

/* See handover.h. */

#include "proto/handover.h"

#include "base/cleanup.h"
#include "base/os/fdpass.h"
#include "base/os/fs.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int handover_send(int socket, enum handover_kind kind, const int *fds, unsigned fd_count)
{
    uint32_t word = kind;
    return fdpass_send(socket, &word, sizeof(word), fds, fd_count);
}

int handover_receive(
    int socket, enum handover_kind *ret_kind, int fds[FDPASS_MAX], unsigned *ret_count)
{
    uint32_t word = 0;
    ssize_t n = fdpass_receive(socket, &word, sizeof(word), fds, FDPASS_MAX, ret_count);
    *ret_kind = (enum handover_kind)word;
    return n < 0 ? (int)n : n > 0;
}

int handover_write_text(const char *name, const struct buf *text)
{
    return fs_memfd_sealed(name, text->data ? text->data : "", text->len);
}

int handover_read_text(int fd, struct buf *to)
{
    cleanup_close int owned = fd;
    off_t at = 0;
    char chunk[65536];
    ssize_t n;
    /* pread: the offset is shared with other processes. */
    while ((n = pread(owned, chunk, sizeof(chunk), at)) > 0) {
        int r = buf_append(to, chunk, (size_t)n);
        if (r < 0)
            return r;
        at += n;
    }
    return n < 0 ? -errno : 0;
}
