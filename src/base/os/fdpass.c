/* SPDX-License-Identifier: Apache-2.0 */

/* See fdpass.h. The receiving end trusts nobody: descriptors that were not asked for are
 * closed. */

#include "base/os/fdpass.h"

#include "base/cleanup.h"

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* As many as the kernel allows: it would close the others for us, which can block. */
enum { CONTROL_MAX = 253 };

union control {
    char bytes[CMSG_SPACE(sizeof(int) * CONTROL_MAX)];
    struct cmsghdr align;
};

static int send_with(
    int socket, const void *data, size_t size, const int *fds, unsigned fd_count, int flags)
{
    union control control;
    struct iovec iov = {.iov_base = (void *)data, .iov_len = size};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
    if (fd_count > FDPASS_MAX)
        return -E2BIG;
    if (fd_count) {
        memset(&control, 0, CMSG_SPACE(sizeof(int) * fd_count));
        msg.msg_control = control.bytes;
        msg.msg_controllen = CMSG_SPACE(sizeof(int) * fd_count);
        struct cmsghdr *head = CMSG_FIRSTHDR(&msg);
        head->cmsg_level = SOL_SOCKET;
        head->cmsg_type = SCM_RIGHTS;
        head->cmsg_len = CMSG_LEN(sizeof(int) * fd_count);
        memcpy(CMSG_DATA(head), fds, sizeof(int) * fd_count);
    }
    while (sendmsg(socket, &msg, MSG_NOSIGNAL | flags) < 0) {
        if (errno != EINTR)
            return -errno;
    }
    return 0;
}

int fdpass_send(int socket, const void *data, size_t size, const int *fds, unsigned fd_count)
{
    return send_with(socket, data, size, fds, fd_count, 0);
}

int fdpass_send_now(
    int socket, const void *data, size_t size, const int *fds, unsigned fd_count)
{
    return send_with(socket, data, size, fds, fd_count, MSG_DONTWAIT);
}

/* A peer that holds the other end of the socket can make the kernel add a pidfd to each packet.
 * take_fds() closes these. */
#ifndef SCM_PIDFD
#define SCM_PIDFD 4
#endif

void fdpass_drop(int *fds, unsigned count)
{
    const struct sockaddr none = {.sa_family = AF_UNSPEC};
    const struct linger off = {0};
    for (unsigned i = 0; i < count; i++) {
        /* What was not sent is lost then, and nothing is left to wait for. */
        if (setsockopt(fds[i], SOL_SOCKET, SO_LINGER, &off, sizeof(off)) == 0)
            (void)connect(fds[i], &none, sizeof(none));
        close_fd(&fds[i]);
    }
}

bool fdpass_is_closed(int socket)
{
    struct pollfd end = {socket, POLLRDHUP, 0};
    return poll(&end, 1, 0) != 0;
}

/* Keeps at most `max` descriptors and closes the rest; false when there were more. */
static bool take_fds(struct msghdr *msg, int *fds, unsigned max, unsigned *ret_count)
{
    bool fits = !(msg->msg_flags & (MSG_TRUNC | MSG_CTRUNC));
    for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
        if (c->cmsg_level != SOL_SOCKET ||
            (c->cmsg_type != SCM_RIGHTS && c->cmsg_type != SCM_PIDFD))
            continue;
        bool is_wanted = c->cmsg_type == SCM_RIGHTS;
        unsigned count = (unsigned)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
        for (unsigned i = 0; i < count; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
            if (is_wanted && *ret_count < max) {
                fds[(*ret_count)++] = fd;
            } else {
                fdpass_drop(&fd, 1);
                fits = fits && !is_wanted;
            }
        }
    }
    return fits;
}

static ssize_t receive_with(
    int socket, void *data, size_t size, int *fds, unsigned max, unsigned *ret_count, int flags)
{
    union control control;
    struct iovec iov = {.iov_base = data, .iov_len = size};
    struct msghdr msg = {.msg_iov = &iov,
        .msg_iovlen = 1,
        .msg_control = control.bytes,
        .msg_controllen = sizeof(control.bytes)};
    ssize_t n;
    *ret_count = 0;
    while ((n = recvmsg(socket, &msg, MSG_CMSG_CLOEXEC | flags)) < 0) {
        if (errno != EINTR)
            return -errno;
    }
    if (!take_fds(&msg, fds, max, ret_count)) {
        fdpass_drop(fds, *ret_count);
        *ret_count = 0;
        return -EMSGSIZE;
    }
    return n;
}

ssize_t fdpass_receive(
    int socket, void *data, size_t size, int *fds, unsigned max, unsigned *ret_count)
{
    return receive_with(socket, data, size, fds, max, ret_count, 0);
}

ssize_t fdpass_receive_now(
    int socket, void *data, size_t size, int *fds, unsigned max, unsigned *ret_count)
{
    return receive_with(socket, data, size, fds, max, ret_count, MSG_DONTWAIT);
}
