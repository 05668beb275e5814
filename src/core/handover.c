/* SPDX-License-Identifier: Apache-2.0 */

/* See handover.h. Used by the monitor and by hermes-server's main. */

#include "core/handover.h"

#include "base/cleanup.h"
#include "base/fs.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int handover_send(int socket, enum handover_kind kind, const int *fds, unsigned fd_count)
{
    union {
        char bytes[CMSG_SPACE(sizeof(int) * HANDOVER_MAX_FDS)];
        struct cmsghdr align;
    } control = {0};
    uint32_t word = kind;
    struct iovec iov = {.iov_base = &word, .iov_len = sizeof(word)};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
    if (fd_count > HANDOVER_MAX_FDS)
        return -E2BIG;
    if (fd_count) {
        msg.msg_control = control.bytes;
        msg.msg_controllen = CMSG_SPACE(sizeof(int) * fd_count);
        struct cmsghdr *head = CMSG_FIRSTHDR(&msg);
        head->cmsg_level = SOL_SOCKET;
        head->cmsg_type = SCM_RIGHTS;
        head->cmsg_len = CMSG_LEN(sizeof(int) * fd_count);
        memcpy(CMSG_DATA(head), fds, sizeof(int) * fd_count);
    }
    while (sendmsg(socket, &msg, MSG_NOSIGNAL) < 0) {
        if (errno != EINTR)
            return -errno;
    }
    return 0;
}

int handover_receive(
    int socket, enum handover_kind *ret_kind, int fds[HANDOVER_MAX_FDS], unsigned *ret_count)
{
    union {
        char bytes[CMSG_SPACE(sizeof(int) * HANDOVER_MAX_FDS)];
        struct cmsghdr align;
    } control;
    uint32_t word = 0;
    struct iovec iov = {.iov_base = &word, .iov_len = sizeof(word)};
    struct msghdr msg = {.msg_iov = &iov,
        .msg_iovlen = 1,
        .msg_control = control.bytes,
        .msg_controllen = sizeof(control.bytes)};
    ssize_t n;
    while ((n = recvmsg(socket, &msg, MSG_CMSG_CLOEXEC)) < 0) {
        if (errno != EINTR)
            return -errno;
    }
    *ret_count = 0;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&msg); c; c = CMSG_NXTHDR(&msg, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        *ret_count = (unsigned)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
        memcpy(fds, CMSG_DATA(c), *ret_count * sizeof(int));
    }
    *ret_kind = (enum handover_kind)word;
    return n > 0;
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
    /* pread: the offset is shared with the monitor's descriptor. */
    while ((n = pread(owned, chunk, sizeof(chunk), at)) > 0) {
        int r = buf_append(to, chunk, (size_t)n);
        if (r < 0)
            return r;
        at += n;
    }
    return n < 0 ? -errno : 0;
}
