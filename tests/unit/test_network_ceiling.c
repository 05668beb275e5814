/* SPDX-License-Identifier: Apache-2.0 */

/* Facts about the operator's ceiling: what is read, and that a ceiling that contradicts itself
 * is refused with the name of the setting. */

#include "test.h"

#include "base/str.h"
#include "network/ceiling.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* The complaints of one call, as "key: why" lines. */
static char said[4096];
static struct network_ceiling ceiling;

static void note(void *context, const char *key, const char *why)
{
    size_t len = strlen(said);
    (void)snprintf(said + len, sizeof(said) - len, "%s: %s\n", key, why);
}

static struct network_settings plain(void)
{
    return (struct network_settings){.max = NETWORK_FULL,
        .open = "",
        .closed = "",
        .closed_names = "",
        .allowed = "",
        .resolvers = "",
        .upstream = "",
        .credentials = ""};
}

static int make(struct network_settings settings)
{
    said[0] = '\0';
    return network_ceiling_make(&settings, &ceiling, note, NULL);
}

static void expect_wrong(struct network_settings settings, const char *words)
{
    assert_int_equal(make(settings), -EINVAL);
    if (!strstr(said, words))
        fail_msg("`%s` is not in `%s`", words, said);
}

static void lists_are_read(void **state)
{
    struct network_settings s = plain();
    char text[ADDRESS_TEXT];
    s.max = NETWORK_ALLOW;
    s.open = "10.1.0.0/16, fd00:1::/32";
    s.closed = "203.0.113.0/24,10.1.2.0/24";
    s.closed_names = "Corp.Example.com, example.net";
    s.allowed = "api.example.com:443, 10.1.0.5:80";
    s.resolvers = "10.1.0.53, 2001:db8::53";
    s.upstream = "http://10.0.0.9:3128";
    s.credentials = "me:secret";
    s.box_max.connections = 7;
    assert_int_equal(make(s), 0);
    assert_int_equal(ceiling.max_mode, NETWORK_ALLOW);
    assert_int_equal(ceiling.open_count, 2);
    address_range_print(&ceiling.open[0], text);
    assert_string_equal(text, "10.1.0.0/16");
    assert_int_equal(ceiling.closed_count, 2);
    assert_int_equal(ceiling.closed_name_count, 2);
    assert_string_equal(ceiling.closed_names[0], "corp.example.com");
    assert_int_equal(ceiling.allowed_count, 2);
    assert_int_equal(ceiling.resolver_count, 2);
    assert_int_equal(ceiling.upstream_port, 3128);
    address_print(&ceiling.upstream, text);
    assert_string_equal(text, "10.0.0.9");
    assert_string_equal(ceiling.upstream_credentials, "me:secret");
    assert_int_equal(ceiling.box_max.connections, 7);
}

static void a_bad_item_is_quoted(void **state)
{
    struct network_settings s = plain();
    s.open = "10.0.0.1/8";
    expect_wrong(s, "network_open: `10.0.0.1/8`");
    s.open = "8.8.8.0/24";
    expect_wrong(s, "network_open: `8.8.8.0/24` is public");
    s.open = "127.0.0.0/8";
    expect_wrong(s, "network_open: `127.0.0.0/8` is loopback");
    s = plain();
    s.closed = "corp";
    expect_wrong(s, "network_closed: `corp`");
    s = plain();
    s.closed_names = "*.example.com";
    expect_wrong(s, "network_closed_names: `*.example.com`");
    s = plain();
    s.resolvers = "dns.example.com";
    expect_wrong(s, "network_resolvers: `dns.example.com`");
    s.resolvers = "8.8.8.8,8.8.4.4,1.1.1.1,9.9.9.9";
    expect_wrong(s, "network_resolvers: there are more than 3");
    s = plain();
    s.max = NETWORK_ALLOW;
    s.allowed = "example.com:0";
    expect_wrong(s, "network_allowed: network entry `example.com:0`");
}

static void contradictions_name_the_setting(void **state)
{
    struct network_settings s = plain();
    s.allowed = "example.com";
    expect_wrong(s, "network_allowed: it needs network_max = allow");
    s = plain();
    s.open = "10.1.0.0/16";
    s.closed = "10.0.0.0/8";
    expect_wrong(s, "network_closed: `10.0.0.0/8` closes all of 10.1.0.0/16");
    s = plain();
    s.max = NETWORK_ALLOW;
    s.allowed = "192.168.1.1:80";
    expect_wrong(s, "network_allowed: `192.168.1.1:80` is closed (private)");
    s = plain();
    s.upstream_filters = true;
    expect_wrong(s, "network_upstream_filters: it needs network_upstream");
}

static void a_proxy_promises_no_more_than_it_keeps(void **state)
{
    struct network_settings s = plain();
    s.upstream = "http://[fd00::9]:3128/";
    expect_wrong(s, "network_upstream: with network_max = full");
    s.upstream_filters = true;
    assert_int_equal(make(s), 0);
    s.max = NETWORK_ALLOW;
    s.upstream_filters = false;
    assert_int_equal(make(s), 0);
    s.upstream_resolves = true;
    expect_wrong(s, "network_upstream_resolves: ");
    s.allowed = "api.example.com";
    assert_int_equal(make(s), 0);
    s.credentials = "nobody";
    expect_wrong(s, "network_upstream_credentials: ");
}

static void the_proxy_is_split(void **state)
{
    static const char *const wrong[] = {"10.0.0.9:3128", "https://10.0.0.9:3128",
        "http://:3128", "http://10.0.0.9", "http://10.0.0.9:0", "http://10.0.0.9:65536",
        "http://a:1/path", "http://[fd00::9]", "http://[fd00::9:80"};
    char host[NETWORK_NAME];
    uint16_t port;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        assert_int_equal(network_upstream_split(wrong[i], host, &port), -EINVAL);
    assert_int_equal(network_upstream_split("http://proxy.example:8080", host, &port), 0);
    assert_string_equal(host, "proxy.example");
    assert_int_equal(port, 8080);
    assert_int_equal(network_upstream_split("http://[fd00::9]:1/", host, &port), 0);
    assert_string_equal(host, "fd00::9");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_are_read),
        cmocka_unit_test(a_bad_item_is_quoted),
        cmocka_unit_test(contradictions_name_the_setting),
        cmocka_unit_test(a_proxy_promises_no_more_than_it_keeps),
        cmocka_unit_test(the_proxy_is_split),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
