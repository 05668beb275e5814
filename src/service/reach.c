/* SPDX-License-Identifier: Apache-2.0 */

/* See reach.h. */

#include "service/reach.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/os/fdpass.h"
#include "base/os/fs.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

/* Sends the call. *ret_fd is our end of the socket for the answer. */
static int send_call(int reach_fd, enum reach_target target, const char *body, int *ret_fd)
{
    int pair[2];
    size_t len = strlen(body);
    const struct reach_call call = {.target = target, .body_len = (uint32_t)len};
    if (len > REACH_BODY_MAX)
        return -E2BIG;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return -errno;
    cleanup_close int ours = pair[0];
    cleanup_close int theirs = pair[1];
    cleanup_close int memory = fs_memfd_sealed("call", body, len);
    const int fds[REACH_CALL_FDS] = {[REACH_CALL_BODY] = memory, [REACH_CALL_ANSWER] = theirs};
    if (memory < 0)
        return memory;
    int r = fdpass_send_now(reach_fd, &call, sizeof(call), fds, REACH_CALL_FDS);
    if (r == 0)
        *ret_fd = take_fd(&ours);
    return r;
}

/* Reads exactly `len` bytes before the deadline. */
static int read_all(int fd, void *to, size_t len, uint64_t deadline_ms)
{
    for (size_t at = 0; at < len;) {
        struct pollfd wait = {.fd = fd, .events = POLLIN};
        uint64_t now = clock_ms();
        if (now >= deadline_ms)
            return -ETIMEDOUT;
        (void)poll(&wait, 1, (int)(deadline_ms - now));
        ssize_t n = recv(fd, (char *)to + at, len - at, MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            continue;
        if (n <= 0)
            return n < 0 ? -errno : -EPIPE;
        at += (size_t)n;
    }
    return 0;
}

static int errno_of(uint32_t error)
{
    switch (error) {
    case REACH_FINE:
        return 0;
    case REACH_TIMEOUT:
        return -ETIMEDOUT;
    case REACH_TOO_LONG:
        return -EMSGSIZE;
    case REACH_UNREACHABLE:
        return -EHOSTUNREACH;
    default:
        return -EPROTO;
    }
}

int reach_call(int reach_fd, enum reach_target target, const char *body, uint32_t timeout_ms,
    uint32_t *ret_status, struct buf *ret_body)
{
    uint64_t deadline_ms = clock_ms() + timeout_ms;
    struct reach_answer answer = {0};
    char bytes[REACH_ANSWER_MAX];
    cleanup_close int fd = -1;
    int r = send_call(reach_fd, target, body, &fd);
    if (r == 0)
        r = read_all(fd, &answer, sizeof(answer), deadline_ms);
    if (r == 0)
        r = errno_of(answer.error);
    if (r == 0 && answer.body_len > sizeof(bytes))
        r = -EMSGSIZE;
    if (r == 0)
        r = read_all(fd, bytes, answer.body_len, deadline_ms);
    if (r == 0)
        r = buf_append(ret_body, bytes, answer.body_len);
    if (r == 0)
        *ret_status = answer.status;
    return r;
}

int reach_tell(int reach_fd, enum reach_target target, const char *body)
{
    cleanup_close int fd = -1;
    return send_call(reach_fd, target, body, &fd);
}
