/* SPDX-License-Identifier: Apache-2.0 */

/* See packet.h. Headers are written byte by byte: nothing here depends on alignment or on the
 * order of bytes. */

#include "egress/packet.h"

#include <errno.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter/nfnetlink_log.h>
#include <linux/netlink.h>
#include <netinet/in.h>
#include <string.h>

enum {
    V4_HEAD = 20,
    V6_HEAD = 40,
    TCP_HEAD = 20,
    UDP_HEAD = 8,
    ICMP_HEAD = 8,
    QUOTED = 8,         /* bytes behind the IP header that an ICMP message repeats */
    MAX_PACKET = 65535, /* of IPv4 with its header, of IPv6 without */
    V4_DONT_FRAGMENT = 0x40,
    HOPS = 64,
};

enum { FLAG_FIN = 1, FLAG_SYN = 2, FLAG_RST = 4, FLAG_ACK = 16 };

static uint16_t get16(const uint8_t *p)
{
    return (uint16_t)(p[0] << 8 | p[1]);
}

static uint32_t get32(const uint8_t *p)
{
    return (uint32_t)get16(p) << 16 | get16(p + 2);
}

static void put16(uint8_t *p, size_t value)
{
    p[0] = (uint8_t)(value >> 8);
    p[1] = (uint8_t)value;
}

static void put32(uint8_t *p, uint32_t value)
{
    put16(p, value >> 16);
    put16(p + 2, value & 0xffff);
}

/* The Internet checksum: sum_add() adds an even number of bytes, or the last ones. */
static uint64_t sum_add(uint64_t sum, const uint8_t *data, size_t len)
{
    for (; len > 1; len -= 2, data += 2)
        sum += get16(data);
    return len ? sum + (uint64_t)(data[0] << 8) : sum;
}

static uint16_t sum_end(uint64_t sum)
{
    while (sum >> 16)
        sum = (sum & 0xffff) + (sum >> 16);
    return (uint16_t)~sum;
}

/* The part of an address that a header holds. */
static const uint8_t *wire(const struct address *a, size_t *ret_len)
{
    *ret_len = address_is_v4(a) ? 4 : 16;
    return a->bytes + sizeof(a->bytes) - *ret_len;
}

/* The sum over the pseudo header of TCP, UDP and ICMPv6. */
static uint64_t sum_pseudo(
    const struct address *from, const struct address *to, uint8_t protocol, size_t len)
{
    size_t n;
    const uint8_t *bytes = wire(from, &n);
    uint64_t sum = sum_add(0, bytes, n);
    bytes = wire(to, &n);
    return sum_add(sum, bytes, n) + protocol + len;
}

static size_t head_len(const struct packet_ends *ends)
{
    return address_is_v4(&ends->source) ? V4_HEAD : V6_HEAD;
}

/* Writes an IP header before `len` bytes of content; returns its length. */
static size_t put_head(uint8_t *p, const struct address *from, const struct address *to,
    uint8_t protocol, size_t len)
{
    size_t n;
    if (!address_is_v4(from)) {
        memset(p, 0, V6_HEAD);
        p[0] = 6 << 4;
        put16(p + 4, len);
        p[6] = protocol;
        p[7] = HOPS;
        memcpy(p + 8, from->bytes, sizeof(from->bytes));
        memcpy(p + 24, to->bytes, sizeof(to->bytes));
        return V6_HEAD;
    }
    memset(p, 0, V4_HEAD);
    p[0] = 4 << 4 | V4_HEAD / 4;
    put16(p + 2, V4_HEAD + len);
    p[6] = V4_DONT_FRAGMENT;
    p[8] = HOPS;
    p[9] = protocol;
    memcpy(p + 12, wire(from, &n), 4);
    memcpy(p + 16, wire(to, &n), 4);
    put16(p + 10, sum_end(sum_add(0, p, V4_HEAD)));
    return V4_HEAD;
}

bool packet_ends_equal(const struct packet_ends *a, const struct packet_ends *b)
{
    return a->source_port == b->source_port && a->destination_port == b->destination_port &&
           memcmp(&a->destination, &b->destination, sizeof(a->destination)) == 0 &&
           memcmp(&a->source, &b->source, sizeof(a->source)) == 0;
}

/* Finds the packet among the attributes of a report. */
static bool find_packet(
    const uint8_t *at, size_t left, const uint8_t **ret_packet, size_t *ret_len)
{
    struct nlattr attribute;
    while (left >= sizeof(attribute)) {
        memcpy(&attribute, at, sizeof(attribute));
        if (attribute.nla_len < sizeof(attribute) || attribute.nla_len > left)
            return false;
        if ((attribute.nla_type & NLA_TYPE_MASK) == NFULA_PAYLOAD) {
            *ret_packet = at + sizeof(attribute);
            *ret_len = attribute.nla_len - sizeof(attribute);
            return true;
        }
        size_t step = NLA_ALIGN(attribute.nla_len);
        if (step > left)
            return false;
        at += step;
        left -= step;
    }
    return false;
}

bool packet_next_report(
    const uint8_t **at, size_t *left, const uint8_t **ret_packet, size_t *ret_len)
{
    const size_t before = sizeof(struct nlmsghdr) + sizeof(struct nfgenmsg);
    struct nlmsghdr head;
    while (*left >= sizeof(head)) {
        const uint8_t *message = *at;
        memcpy(&head, message, sizeof(head));
        if (head.nlmsg_len < sizeof(head) || head.nlmsg_len > *left)
            break;
        size_t step = NLMSG_ALIGN((size_t)head.nlmsg_len);
        step = step < *left ? step : *left;
        *at += step;
        *left -= step;
        if (head.nlmsg_type == (NFNL_SUBSYS_ULOG << 8 | NFULNL_MSG_PACKET) &&
            head.nlmsg_len >= before &&
            find_packet(message + before, head.nlmsg_len - before, ret_packet, ret_len))
            return true;
    }
    *left = 0;
    return false;
}

/* Reads the IP header; returns where TCP begins, or 0. */
static size_t parse_head(struct packet_ends *ret, const uint8_t *p, size_t len)
{
    if (len >= V4_HEAD + TCP_HEAD && p[0] == (4 << 4 | V4_HEAD / 4)) {
        bool is_part = (get16(p + 6) & 0x3fff) != 0; /* more fragments, or not the first */
        if (is_part || p[9] != IPPROTO_TCP || get16(p + 2) < V4_HEAD + TCP_HEAD)
            return 0;
        ret->source = address_v4(p + 12);
        ret->destination = address_v4(p + 16);
        return V4_HEAD;
    }
    if (len < V6_HEAD + TCP_HEAD || p[0] >> 4 != 6 || p[6] != IPPROTO_TCP ||
        get16(p + 4) < TCP_HEAD)
        return 0;
    memcpy(ret->source.bytes, p + 8, sizeof(ret->source.bytes));
    memcpy(ret->destination.bytes, p + 24, sizeof(ret->destination.bytes));
    return address_is_v4(&ret->source) || address_is_v4(&ret->destination) ? 0 : V6_HEAD;
}

int packet_parse_syn(struct packet_syn *ret, const uint8_t *packet, size_t len)
{
    struct packet_syn syn = {.len = 0};
    size_t head = parse_head(&syn.ends, packet, len);
    if (head == 0)
        return -EINVAL;
    const uint8_t *tcp = packet + head;
    size_t said = head == V4_HEAD ? get16(packet + 2) - (size_t)V4_HEAD : get16(packet + 4);
    size_t tcp_len = (size_t)(tcp[12] >> 4) * 4;
    if (tcp_len < TCP_HEAD || tcp_len > len - head || tcp_len > said)
        return -EINVAL;
    if ((tcp[13] & (FLAG_SYN | FLAG_ACK | FLAG_RST | FLAG_FIN)) != FLAG_SYN)
        return -EINVAL;
    syn.ends.source_port = get16(tcp);
    syn.ends.destination_port = get16(tcp + 2);
    syn.sequence = get32(tcp + 4);
    (void)put_head(syn.bytes, &syn.ends.source, &syn.ends.destination, IPPROTO_TCP, tcp_len);
    /* On loopback the kernel reports half a checksum: hardware would add the rest. */
    uint8_t *again = syn.bytes + head;
    memcpy(again, tcp, tcp_len);
    put16(again + 16, 0);
    uint64_t sum = sum_pseudo(&syn.ends.source, &syn.ends.destination, IPPROTO_TCP, tcp_len);
    put16(again + 16, sum_end(sum_add(sum, again, tcp_len)));
    syn.len = (uint16_t)(head + tcp_len);
    *ret = syn;
    return 0;
}

size_t packet_build_reset(uint8_t ret[PACKET_SMALL], const struct packet_syn *syn)
{
    const struct packet_ends *ends = &syn->ends;
    size_t head = put_head(ret, &ends->destination, &ends->source, IPPROTO_TCP, TCP_HEAD);
    uint8_t *tcp = ret + head;
    memset(tcp, 0, TCP_HEAD);
    put16(tcp, ends->destination_port);
    put16(tcp + 2, ends->source_port);
    put32(tcp + 8, syn->sequence + 1);
    tcp[12] = TCP_HEAD / 4 << 4;
    tcp[13] = FLAG_RST | FLAG_ACK;
    uint64_t sum = sum_pseudo(&ends->destination, &ends->source, IPPROTO_TCP, TCP_HEAD);
    put16(tcp + 16, sum_end(sum_add(sum, tcp, TCP_HEAD)));
    return head + TCP_HEAD;
}

/* Type and code of the message, by family. */
static const struct {
    uint8_t v4[2];
    uint8_t v6[2];
} unreachable[] = {
    [PACKET_PROHIBITED] = {{3, 13}, {1, 1}},
    [PACKET_HOST_UNREACHABLE] = {{3, 1}, {1, 3}},
    [PACKET_PORT_UNREACHABLE] = {{3, 3}, {1, 4}},
};

/* `quoted` are the first bytes behind the IP header of the packet in question. */
static size_t build_unreachable(uint8_t *ret, const struct packet_ends *ends, uint8_t protocol,
    const uint8_t quoted[QUOTED], size_t quoted_len, enum packet_unreachable why)
{
    bool is_v4 = address_is_v4(&ends->source);
    size_t head = head_len(ends);
    size_t len = ICMP_HEAD + head + QUOTED;
    uint8_t *icmp = ret + head;
    (void)put_head(
        ret, &ends->destination, &ends->source, is_v4 ? IPPROTO_ICMP : IPPROTO_ICMPV6, len);
    memset(icmp, 0, ICMP_HEAD);
    memcpy(icmp, is_v4 ? unreachable[why].v4 : unreachable[why].v6, 2);
    (void)put_head(icmp + ICMP_HEAD, &ends->source, &ends->destination, protocol, quoted_len);
    memcpy(icmp + ICMP_HEAD + head, quoted, QUOTED);
    uint64_t sum =
        is_v4 ? 0 : sum_pseudo(&ends->destination, &ends->source, IPPROTO_ICMPV6, len);
    put16(icmp + 2, sum_end(sum_add(sum, icmp, len)));
    return head + len;
}

size_t packet_build_unreachable_syn(
    uint8_t ret[PACKET_SMALL], const struct packet_syn *syn, enum packet_unreachable why)
{
    size_t head = head_len(&syn->ends);
    return build_unreachable(
        ret, &syn->ends, IPPROTO_TCP, syn->bytes + head, syn->len - head, why);
}

static void put_udp(uint8_t *p, uint16_t from, uint16_t to, size_t len)
{
    put16(p, from);
    put16(p + 2, to);
    put16(p + 4, UDP_HEAD + len);
    put16(p + 6, 0);
}

static size_t udp_room(const struct packet_ends *ends)
{
    return (size_t)MAX_PACKET - UDP_HEAD - (address_is_v4(&ends->source) ? V4_HEAD : 0);
}

size_t packet_build_unreachable_udp(uint8_t ret[PACKET_SMALL], const struct packet_ends *ends,
    size_t len, enum packet_unreachable why)
{
    uint8_t quoted[QUOTED];
    size_t most = udp_room(ends);
    len = len < most ? len : most;
    put_udp(quoted, ends->source_port, ends->destination_port, len);
    return build_unreachable(ret, ends, IPPROTO_UDP, quoted, UDP_HEAD + len, why);
}

size_t packet_build_udp_head(
    uint8_t ret[PACKET_UDP_HEAD], const struct packet_ends *ends, const void *data, size_t len)
{
    if (len > udp_room(ends))
        return 0;
    size_t head = put_head(ret, &ends->destination, &ends->source, IPPROTO_UDP, UDP_HEAD + len);
    uint8_t *udp = ret + head;
    put_udp(udp, ends->destination_port, ends->source_port, len);
    uint64_t sum = sum_pseudo(&ends->destination, &ends->source, IPPROTO_UDP, UDP_HEAD + len);
    uint16_t check = sum_end(sum_add(sum_add(sum, udp, UDP_HEAD), data, len));
    put16(udp + 6, check ? check : 0xffff); /* 0 would say that there is none */
    return head + UDP_HEAD;
}
