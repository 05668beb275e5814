/* SPDX-License-Identifier: Apache-2.0 */

/* See batch.h. */

#include "kit/batch.h"

#include "base/cleanup.h"

#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <linux/netlink.h>
#include <string.h>
#include <sys/socket.h>

/* Room for `size` more bytes, zeroed, rounded up to what netlink aligns to. */
static uint8_t *extend(struct batch *b, size_t size)
{
    size_t whole = NLMSG_ALIGN(size);
    if (b->is_full || whole > sizeof(b->bytes) - b->len) {
        b->is_full = true;
        return NULL;
    }
    uint8_t *at = b->bytes + b->len;
    memset(at, 0, whole);
    b->len += whole;
    return at;
}

void batch_begin(
    struct batch *b, unsigned type, unsigned flags, const void *head, size_t head_size)
{
    b->message = b->len;
    struct nlmsghdr h = {.nlmsg_type = (uint16_t)type,
        .nlmsg_flags = (uint16_t)(NLM_F_REQUEST | flags),
        .nlmsg_seq = (uint32_t)b->len};
    uint8_t *at = extend(b, NLMSG_HDRLEN + head_size);
    if (!at)
        return;
    memcpy(at, &h, sizeof(h));
    memcpy(at + NLMSG_HDRLEN, head, head_size);
    b->acks += !!(flags & NLM_F_ACK);
}

void batch_end(struct batch *b)
{
    uint32_t len = (uint32_t)(b->len - b->message);
    if (!b->is_full)
        memcpy(b->bytes + b->message + offsetof(struct nlmsghdr, nlmsg_len), &len, sizeof(len));
}

void batch_put(struct batch *b, unsigned type, const void *value, size_t size)
{
    struct nlattr a = {.nla_len = (uint16_t)(NLA_HDRLEN + size), .nla_type = (uint16_t)type};
    uint8_t *at = extend(b, NLA_HDRLEN + size);
    if (!at)
        return;
    memcpy(at, &a, sizeof(a));
    memcpy(at + NLA_HDRLEN, value, size);
}

void batch_put_text(struct batch *b, unsigned type, const char *text)
{
    batch_put(b, type, text, strlen(text) + 1);
}

void batch_put_be16(struct batch *b, unsigned type, uint16_t value)
{
    uint16_t v = htons(value);
    batch_put(b, type, &v, sizeof(v));
}

void batch_put_be32(struct batch *b, unsigned type, uint32_t value)
{
    uint32_t v = htonl(value);
    batch_put(b, type, &v, sizeof(v));
}

void batch_put_be64(struct batch *b, unsigned type, uint64_t value)
{
    uint64_t v = htobe64(value);
    batch_put(b, type, &v, sizeof(v));
}

size_t batch_open(struct batch *b, unsigned type)
{
    size_t start = b->len;
    batch_put(b, type | NLA_F_NESTED, "", 0);
    return start;
}

void batch_close(struct batch *b, size_t start)
{
    uint16_t len = (uint16_t)(b->len - start);
    if (!b->is_full)
        memcpy(b->bytes + start + offsetof(struct nlattr, nla_len), &len, sizeof(len));
}

/* Looks at the answers in one packet of the kernel. */
static int read_answers(const uint8_t *bytes, size_t size, unsigned *acks)
{
    while (size >= NLMSG_HDRLEN) {
        struct nlmsghdr h;
        int32_t error;
        memcpy(&h, bytes, sizeof(h));
        if (h.nlmsg_len < NLMSG_HDRLEN || h.nlmsg_len > size)
            return -EPROTO;
        if (h.nlmsg_type == NLMSG_ERROR) {
            if (h.nlmsg_len < NLMSG_HDRLEN + sizeof(error))
                return -EPROTO;
            memcpy(&error, bytes + NLMSG_HDRLEN, sizeof(error));
            if (error)
                return error < 0 ? error : -EPROTO;
            ++*acks;
        }
        size_t whole = NLMSG_ALIGN(h.nlmsg_len);
        size_t step = whole < size ? whole : size;
        bytes += step;
        size -= step;
    }
    return 0;
}

int batch_send(int socket, const struct batch *b)
{
    struct sockaddr_nl kernel = {.nl_family = AF_NETLINK};
    unsigned acks = 0;
    if (b->is_full)
        return -ENOSPC;
    if (sendto(socket, b->bytes, b->len, 0, (struct sockaddr *)&kernel, sizeof(kernel)) < 0)
        return -errno;
    for (;;) {
        uint8_t answer[BATCH_BYTES];
        struct sockaddr_nl from = {0};
        socklen_t from_size = sizeof(from);
        ssize_t n = recvfrom(socket, answer, sizeof(answer), MSG_DONTWAIT | MSG_TRUNC,
            (struct sockaddr *)&from, &from_size);
        if (n < 0 && errno == EAGAIN)
            return acks == b->acks ? 0 : -EPROTO;
        if (n < 0)
            return -errno;
        if (from.nl_pid != 0) /* the message is not from the kernel */
            continue;
        int r = (size_t)n > sizeof(answer) ? -EMSGSIZE : read_answers(answer, (size_t)n, &acks);
        if (r < 0)
            return r;
    }
}

int batch_tell(int protocol, const struct batch *b)
{
    cleanup_close int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, protocol);
    return fd < 0 ? -errno : batch_send(fd, b);
}
