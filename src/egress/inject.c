/* SPDX-License-Identifier: Apache-2.0 */

/* Packets into a box, through the raw senders of its kit. A packet that does not get through is
 * lost like any other packet: the box sends again. */

#include "egress/egress.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/uio.h>

socklen_t sockaddr_make(
    struct sockaddr_storage *ret, const struct address *address, uint16_t port)
{
    *ret = (struct sockaddr_storage){0};
    if (address_is_v4(address)) {
        struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(port)};
        memcpy(&v4.sin_addr, address->bytes + 12, sizeof(v4.sin_addr));
        memcpy(ret, &v4, sizeof(v4));
        return sizeof(v4);
    }
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    memcpy(&v6.sin6_addr, address->bytes, sizeof(v6.sin6_addr));
    memcpy(ret, &v6, sizeof(v6));
    return sizeof(v6);
}

bool sockaddr_read(
    const struct sockaddr_storage *from, struct address *ret_address, uint16_t *ret_port)
{
    if (from->ss_family == AF_INET) {
        struct sockaddr_in v4;
        memcpy(&v4, from, sizeof(v4));
        *ret_address = address_v4((const uint8_t *)&v4.sin_addr);
        *ret_port = ntohs(v4.sin_port);
        return true;
    }
    if (from->ss_family != AF_INET6)
        return false;
    struct sockaddr_in6 v6;
    memcpy(&v6, from, sizeof(v6));
    memcpy(ret_address->bytes, &v6.sin6_addr, sizeof(ret_address->bytes));
    *ret_port = ntohs(v6.sin6_port);
    return true;
}

static void inject(
    const struct box *b, const struct address *to, const struct iovec *parts, size_t count)
{
    struct sockaddr_storage name;
    socklen_t len = sockaddr_make(&name, to, 0);
    struct msghdr message = {.msg_name = &name,
        .msg_namelen = len,
        .msg_iov = (struct iovec *)parts,
        .msg_iovlen = count};
    int fd = b->raw[address_is_v4(to) ? 0 : 1];
    if (fd >= 0)
        (void)sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void inject_one(
    const struct box *b, const struct address *to, const uint8_t *packet, size_t len)
{
    struct iovec part = {.iov_base = (void *)packet, .iov_len = len};
    inject(b, to, &part, 1);
}

void inject_syn(const struct box *b, const struct packet_syn *syn)
{
    inject_one(b, &syn->ends.destination, syn->bytes, syn->len);
}

void inject_reset(const struct box *b, const struct packet_syn *syn)
{
    uint8_t packet[PACKET_SMALL];
    inject_one(b, &syn->ends.source, packet, packet_build_reset(packet, syn));
}

void inject_unreachable_syn(
    const struct box *b, const struct packet_syn *syn, enum packet_unreachable why)
{
    uint8_t packet[PACKET_SMALL];
    size_t len = packet_build_unreachable_syn(packet, syn, why);
    inject_one(b, &syn->ends.source, packet, len);
}

void inject_unreachable_udp(const struct box *b, const struct packet_ends *ends, size_t len,
    enum packet_unreachable why)
{
    uint8_t packet[PACKET_SMALL];
    size_t size = packet_build_unreachable_udp(packet, ends, len, why);
    inject_one(b, &ends->source, packet, size);
}

void inject_datagram(
    const struct box *b, const struct packet_ends *ends, const void *data, size_t len)
{
    uint8_t head[PACKET_UDP_HEAD];
    size_t head_len = packet_build_udp_head(head, ends, data, len);
    const struct iovec parts[] = {
        {.iov_base = head, .iov_len = head_len}, {.iov_base = (void *)data, .iov_len = len}};
    if (head_len)
        inject(b, &ends->source, parts, 2);
}
