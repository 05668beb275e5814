/* SPDX-License-Identifier: Apache-2.0 */

/* Addresses: one spelling each, and the class of every range that boxes must not reach. */

#include "base/address.h"
#include "test.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

static const struct {
    const char *text;
    enum address_class class;
} cases[] = {
    {"8.8.8.8", ADDRESS_PUBLIC},
    {"1.0.0.1", ADDRESS_PUBLIC},
    {"0.1.2.3", ADDRESS_THIS_NETWORK},
    {"10.255.255.255", ADDRESS_PRIVATE},
    {"11.0.0.0", ADDRESS_PUBLIC},
    {"172.15.255.255", ADDRESS_PUBLIC},
    {"172.31.0.1", ADDRESS_PRIVATE},
    {"172.32.0.0", ADDRESS_PUBLIC},
    {"192.168.7.7", ADDRESS_PRIVATE},
    {"100.64.0.1", ADDRESS_SHARED},
    {"100.100.100.200", ADDRESS_METADATA},
    {"100.128.0.0", ADDRESS_PUBLIC},
    {"127.0.0.1", ADDRESS_LOOPBACK},
    {"169.254.1.1", ADDRESS_LINK_LOCAL},
    {"169.254.169.254", ADDRESS_METADATA},
    {"168.63.129.16", ADDRESS_METADATA},
    {"192.0.0.8", ADDRESS_PROTOCOL},
    {"198.19.255.255", ADDRESS_BENCHMARKING},
    {"203.0.113.10", ADDRESS_DOCUMENTATION},
    {"224.0.0.1", ADDRESS_MULTICAST},
    {"255.255.255.255", ADDRESS_RESERVED},
    {"::ffff:10.0.0.5", ADDRESS_PRIVATE},
    {"::ffff:8.8.8.8", ADDRESS_PUBLIC},
    {"::", ADDRESS_THIS_NETWORK},
    {"::1", ADDRESS_LOOPBACK},
    {"::a00:5", ADDRESS_NOT_GLOBAL},
    {"64:ff9b::a00:5", ADDRESS_NOT_GLOBAL},
    {"100::1", ADDRESS_NOT_GLOBAL},
    {"fd00:ec2::254", ADDRESS_METADATA},
    {"fd12::1", ADDRESS_PRIVATE},
    {"fe80::1", ADDRESS_LINK_LOCAL},
    {"ff02::1", ADDRESS_MULTICAST},
    {"2001:db8::1", ADDRESS_DOCUMENTATION},
    {"2001::1", ADDRESS_PROTOCOL},
    {"2002:a00:5::1", ADDRESS_6TO4},
    {"2606:4700::1", ADDRESS_PUBLIC},
    {"3fff:fff::1", ADDRESS_DOCUMENTATION},
    {"4000::1", ADDRESS_NOT_GLOBAL},
};

static void test_classes(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct address a;
        assert_int_equal(address_parse(&a, cases[i].text), 0);
        if (address_classify(&a) != cases[i].class)
            fail_msg("%s: %s", cases[i].text, address_class_name(address_classify(&a)));
    }
}

static void test_ranges(void **state)
{
    static const char *const good[] = {
        "8.8.8.8", "8.8.0.0/16", "0.0.0.0/0", "2600::/12", "::/0"};
    static const char *const bad[] = {"", "8.8.8.8/33", "8.8.8.1/24", "8.8.8.8/", "8.8.8.8/08",
        "08.8.8.8", "8.8.8", "0x8.8.8.8", "2600::/129", "2600::1/64", "fe80::1%lo", "8.8.8.8 ",
        "8.8.8.8/-1", "[2600::]"};
    char text[ADDRESS_TEXT];
    struct address_range r;
    (void)state;
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        assert_int_equal(address_range_parse(&r, good[i]), 0);
        address_range_print(&r, text);
        assert_string_equal(text, good[i]);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        if (address_range_parse(&r, bad[i]) == 0)
            fail_msg("%s was accepted", bad[i]);
}

/* A range is public only if no address of it is closed. */
static void test_a_range_around_a_closed_one_is_closed(void **state)
{
    struct address_range r;
    struct address_range inner;
    (void)state;
    assert_int_equal(address_range_parse(&r, "8.0.0.0/8"), 0);
    assert_int_equal(address_range_classify(&r), ADDRESS_PUBLIC);
    assert_int_equal(address_range_parse(&inner, "8.8.0.0/16"), 0);
    assert_true(address_range_covers(&r, &inner));
    assert_false(address_range_covers(&inner, &r));
    assert_int_equal(address_range_parse(&r, "0.0.0.0/0"), 0);
    assert_int_not_equal(address_range_classify(&r), ADDRESS_PUBLIC);
    assert_int_equal(address_range_parse(&r, "2000::/3"), 0);
    assert_int_not_equal(address_range_classify(&r), ADDRESS_PUBLIC);
    assert_int_equal(address_range_parse(&r, "2600::/12"), 0);
    assert_int_equal(address_range_classify(&r), ADDRESS_PUBLIC);
}

static void test_loopback(void **state)
{
    static const struct {
        const char *text;
        bool is_loopback;
    } rows[] = {{"127.0.0.1", true}, {"127.255.255.254", true}, {"128.0.0.1", false},
        {"126.255.255.255", false}, {"0.0.0.0", false}, {"10.0.0.1", false}, {"::1", true},
        {"::", false}, {"::2", false}, {"::7f00:1", false}, {"fe80::1", false},
        {"::ffff:127.0.0.1", true}, {"::ffff:127.9.9.9", true}, {"::ffff:128.0.0.1", false}};
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct sockaddr_in four = {.sin_family = AF_INET};
        struct sockaddr_in6 six = {.sin6_family = AF_INET6};
        bool is_four = inet_pton(AF_INET, rows[i].text, &four.sin_addr) == 1;
        assert_true(is_four || inet_pton(AF_INET6, rows[i].text, &six.sin6_addr) == 1);
        const struct sockaddr *socket =
            is_four ? (const struct sockaddr *)&four : (const struct sockaddr *)&six;
        if (address_is_loopback(socket) != rows[i].is_loopback)
            fail_msg("%s", rows[i].text);
    }
    assert_true(address_is_loopback(&(struct sockaddr){.sa_family = AF_UNIX}));
    assert_false(address_is_loopback(&(struct sockaddr){.sa_family = AF_NETLINK}));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_classes),
        cmocka_unit_test(test_ranges),
        cmocka_unit_test(test_a_range_around_a_closed_one_is_closed),
        cmocka_unit_test(test_loopback),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
