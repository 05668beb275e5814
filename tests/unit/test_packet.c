/* SPDX-License-Identifier: Apache-2.0 */

/* Packets of a box: what is read from a report, and what is built. Checksums are verified by a
 * second, slower sum over the finished packet. */

#include "egress/packet.h"
#include "test.h"

#include <errno.h>
#include <linux/netfilter/nfnetlink_log.h>
#include <linux/netlink.h>
#include <netinet/in.h>
#include <string.h>

enum { V4 = 20, V6 = 40, TCP = 20 };

/* 192.0.0.2:40000 to 8.8.4.4:443, sequence 0x01020304, with an option and four bytes of data.
 */
static const uint8_t syn_v4[] = {0x45, 0, 0, 48, 0x12, 0x34, 0x40, 0, 64, 6, 0, 0, 192, 0, 0, 2,
    8, 8, 4, 4, 0x9c, 0x40, 0x01, 0xbb, 1, 2, 3, 4, 0, 0, 0, 0, 0x60, 0x02, 0xfa, 0xf0, 0xab,
    0xcd, 0, 0, 2, 4, 0x05, 0xb4, 'd', 'a', 't', 'a'};

/* fd00:6865::2 port 40000 to 2606:4700::1 port 80. */
static const uint8_t syn_v6[] = {0x60, 1, 2, 3, 0, 20, 6, 64, 0xfd, 0, 0x68, 0x65, 0, 0, 0, 0,
    0, 0, 0, 0, 0, 0, 0, 2, 0x26, 0x06, 0x47, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0x9c, 0x40,
    0, 80, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0x50, 0x02, 0xfa, 0xf0, 0xab, 0xcd, 0, 0};

static uint16_t word(const uint8_t *p)
{
    return (uint16_t)(p[0] << 8 | p[1]);
}

/* The sum of a correct checksum's range is 0xffff. */
static unsigned fold(const uint8_t *p, size_t len, unsigned sum)
{
    for (size_t i = 0; i < len; i++) {
        sum += (unsigned)(i % 2 ? p[i] : p[i] << 8);
        sum = (sum & 0xffff) + (sum >> 16);
    }
    return sum;
}

/* Checks lengths and checksums of a packet whose content is `protocol`. `data` stands behind
 * its headers. */
static void check_sums(
    const uint8_t *p, size_t len, uint8_t protocol, const uint8_t *data, size_t data_len)
{
    bool is_v4 = p[0] >> 4 == 4;
    size_t head = is_v4 ? V4 : V6;
    size_t content = len - head + data_len;
    assert_int_equal(p[is_v4 ? 9 : 6], protocol);
    assert_int_equal(word(p + (is_v4 ? 2 : 4)), is_v4 ? len + data_len : content);
    if (is_v4)
        assert_int_equal(fold(p, V4, 0), 0xffff);
    unsigned sum = 0;
    if (protocol != IPPROTO_ICMP) {
        uint8_t rest[4] = {(uint8_t)(content >> 8), (uint8_t)content, 0, protocol};
        sum = fold(p + (is_v4 ? 12 : 8), is_v4 ? 8 : 32, fold(rest, 4, 0));
    }
    assert_int_equal(fold(data, data_len, fold(p + head, len - head, sum)), 0xffff);
}

static void check_address(const struct address *a, const char *text)
{
    char got[ADDRESS_TEXT];
    address_print(a, got);
    assert_string_equal(got, text);
}

static void test_syn_v4(void **state)
{
    struct packet_syn syn;
    (void)state;
    assert_int_equal(packet_parse_syn(&syn, syn_v4, sizeof(syn_v4)), 0);
    check_address(&syn.ends.source, "192.0.0.2");
    check_address(&syn.ends.destination, "8.8.4.4");
    assert_int_equal(syn.ends.source_port, 40000);
    assert_int_equal(syn.ends.destination_port, 443);
    assert_int_equal(syn.sequence, 0x01020304);
    /* the data is gone, the option stays */
    assert_int_equal(syn.len, V4 + TCP + 4);
    check_sums(syn.bytes, syn.len, IPPROTO_TCP, NULL, 0);
    assert_memory_equal(syn.bytes + V4, syn_v4 + V4, 16);
    assert_memory_equal(syn.bytes + V4 + 20, syn_v4 + V4 + 20, 4);
}

static void test_syn_v6(void **state)
{
    struct packet_syn syn;
    (void)state;
    assert_int_equal(packet_parse_syn(&syn, syn_v6, sizeof(syn_v6)), 0);
    check_address(&syn.ends.source, "fd00:6865::2");
    check_address(&syn.ends.destination, "2606:4700::1");
    assert_int_equal(syn.ends.destination_port, 80);
    assert_int_equal(syn.len, V6 + TCP);
    check_sums(syn.bytes, syn.len, IPPROTO_TCP, NULL, 0);
}

/* A packet that differs in one byte from an accepted one. */
static const struct {
    bool is_v6;
    size_t at;
    uint8_t value;
    const char *why;
} refused[] = {
    {false, 0, 0x46, "IPv4 options"},
    {false, 0, 0x55, "version 5"},
    {false, 3, 30, "total length too short"},
    {false, 6, 0x20, "more fragments"},
    {false, 7, 1, "not the first fragment"},
    {false, 9, IPPROTO_UDP, "not TCP"},
    {false, 32, 0x40, "TCP header too short"},
    {false, 32, 0xf0, "TCP header longer than the packet"},
    {false, 33, 0x12, "SYN and ACK"},
    {false, 33, 0x06, "SYN and RST"},
    {false, 33, 0x03, "SYN and FIN"},
    {false, 33, 0x10, "no SYN"},
    {true, 6, 0, "hop-by-hop header"},
    {true, 6, 43, "routing header"},
    {true, 6, 44, "fragment header"},
    {true, 5, 19, "payload length too short"},
};

static void test_refused(void **state)
{
    struct packet_syn syn;
    (void)state;
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        uint8_t p[sizeof(syn_v6)];
        size_t len = refused[i].is_v6 ? sizeof(syn_v6) : sizeof(syn_v4);
        memcpy(p, refused[i].is_v6 ? syn_v6 : syn_v4, len);
        p[refused[i].at] = refused[i].value;
        if (packet_parse_syn(&syn, p, len) != -EINVAL)
            fail_msg("accepted: %s", refused[i].why);
    }
    /* a second spelling of an IPv4 address */
    uint8_t mapped[sizeof(syn_v6)];
    memcpy(mapped, syn_v6, sizeof(mapped));
    memset(mapped + 24, 0, 10);
    memset(mapped + 34, 0xff, 2);
    assert_int_equal(packet_parse_syn(&syn, mapped, sizeof(mapped)), -EINVAL);
    for (size_t len = 0; len < V4 + TCP + 4; len++)
        assert_int_equal(packet_parse_syn(&syn, syn_v4, len), -EINVAL);
}

static void test_reset(void **state)
{
    static const struct {
        const uint8_t *bytes;
        size_t len;
    } cases[] = {{syn_v4, sizeof(syn_v4)}, {syn_v6, sizeof(syn_v6)}};
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct packet_syn syn;
        uint8_t p[PACKET_SMALL];
        size_t head = i ? V6 : V4;
        assert_int_equal(packet_parse_syn(&syn, cases[i].bytes, cases[i].len), 0);
        size_t len = packet_build_reset(p, &syn);
        assert_int_equal(len, head + TCP);
        check_sums(p, len, IPPROTO_TCP, NULL, 0);
        assert_int_equal(word(p + head), syn.ends.destination_port);
        assert_int_equal(word(p + head + 2), syn.ends.source_port);
        assert_int_equal(p[head + 13], 0x14);
        uint32_t ack = (uint32_t)word(p + head + 8) << 16 | word(p + head + 10);
        assert_int_equal(ack, (uint32_t)(syn.sequence + 1));
    }
}

static void test_unreachable(void **state)
{
    struct packet_syn syn;
    uint8_t p[PACKET_SMALL];
    (void)state;
    assert_int_equal(packet_parse_syn(&syn, syn_v4, sizeof(syn_v4)), 0);
    size_t len = packet_build_unreachable_syn(p, &syn, PACKET_HOST_UNREACHABLE);
    assert_int_equal(len, V4 + 8 + V4 + 8);
    check_sums(p, len, IPPROTO_ICMP, NULL, 0);
    assert_int_equal(word(p + V4), 0x0301);
    /* it quotes the attempt: ports and sequence number */
    assert_memory_equal(p + V4 + 8 + V4, syn_v4 + V4, 8);
    assert_memory_equal(p + V4 + 8 + 12, syn_v4 + 12, 8);

    assert_int_equal(packet_parse_syn(&syn, syn_v6, sizeof(syn_v6)), 0);
    len = packet_build_unreachable_udp(p, &syn.ends, 100, PACKET_PROHIBITED);
    assert_int_equal(len, V6 + 8 + V6 + 8);
    check_sums(p, len, IPPROTO_ICMPV6, NULL, 0);
    assert_int_equal(word(p + V6), 0x0101);
    assert_int_equal(p[V6 + 8 + 6], IPPROTO_UDP);
    assert_int_equal(word(p + V6 + 8 + V6 + 4), 108);
}

static void test_datagram(void **state)
{
    struct packet_syn syn;
    uint8_t head[PACKET_UDP_HEAD];
    static uint8_t data[65535];
    (void)state;
    memset(data, 0xa5, sizeof(data));
    for (int is_v6 = 0; is_v6 < 2; is_v6++) {
        size_t most = is_v6 ? 65527 : 65507;
        assert_int_equal(packet_parse_syn(&syn, is_v6 ? syn_v6 : syn_v4,
                             is_v6 ? sizeof(syn_v6) : sizeof(syn_v4)),
            0);
        for (size_t len = 0; len <= most; len = len < 3 ? len + 1 : len + most - 3) {
            size_t n = packet_build_udp_head(head, &syn.ends, data, len);
            assert_int_equal(n, (is_v6 ? V6 : V4) + 8);
            check_sums(head, n, IPPROTO_UDP, data, len);
            assert_int_equal(word(head + n - 8), syn.ends.destination_port);
            assert_int_equal(word(head + n - 6), syn.ends.source_port);
        }
        assert_int_equal(packet_build_udp_head(head, &syn.ends, data, most + 1), 0);
    }
}

/* Appends a netlink message with one attribute. */
static size_t put_report(
    uint8_t *to, uint16_t type, uint16_t attribute, const void *data, size_t len)
{
    size_t before = sizeof(struct nlmsghdr) + 4;
    struct nlattr a = {.nla_len = (uint16_t)(4 + len), .nla_type = attribute};
    struct nlmsghdr h = {
        .nlmsg_len = (uint32_t)(before + NLA_ALIGN(4 + len)), .nlmsg_type = type};
    memset(to, 0, h.nlmsg_len);
    memcpy(to, &h, sizeof(h));
    memcpy(to + before, &a, sizeof(a));
    memcpy(to + before + sizeof(a), data, len);
    return h.nlmsg_len;
}

static void test_reports(void **state)
{
    enum { REPORT = 4 << 8 | NFULNL_MSG_PACKET };
    uint8_t bytes[512];
    const uint8_t *packet;
    size_t len;
    (void)state;
    size_t n = put_report(bytes, REPORT, NFULA_PAYLOAD, "one", 3);
    n += put_report(bytes + n, 3, NFULA_PAYLOAD, "done", 4);
    n += put_report(bytes + n, REPORT, NFULA_PREFIX, "none", 4);
    n += put_report(bytes + n, REPORT, NFULA_PAYLOAD, "three", 5);
    const uint8_t *at = bytes;
    size_t left = n;
    assert_true(packet_next_report(&at, &left, &packet, &len));
    assert_int_equal(len, 3);
    assert_memory_equal(packet, "one", 3);
    assert_true(packet_next_report(&at, &left, &packet, &len));
    assert_memory_equal(packet, "three", 5);
    assert_false(packet_next_report(&at, &left, &packet, &len));
    /* an attribute or a message that is longer than the bytes */
    for (size_t cut = 0; cut < n; cut++) {
        at = bytes;
        left = cut;
        while (packet_next_report(&at, &left, &packet, &len))
            assert_true(packet + len <= bytes + cut);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_syn_v4),
        cmocka_unit_test(test_syn_v6),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_reset),
        cmocka_unit_test(test_unreachable),
        cmocka_unit_test(test_datagram),
        cmocka_unit_test(test_reports),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
