/* SPDX-License-Identifier: Apache-2.0 */

/* Entries of allow lists: one spelling each, every mistake is quoted, and the operator's
 * ceiling decides about each. */

#include "network/entry.h"
#include "test.h"

#include <string.h>

static const struct {
    const char *text;
    const char *printed; /* NULL: the text itself */
} good[] = {
    {"example.com", NULL},
    {"Example.COM.", "example.com"},
    {"example.com:443", NULL},
    {"example.com:443-443", "example.com:443"},
    {"example.com:80-90", NULL},
    {"example.com:*", NULL},
    {"example.com:1-65535", "example.com:*"},
    {"example.com/udp", NULL},
    {"time.example.com:123/udp", NULL},
    {"*.example.com", NULL},
    {"*.EXAMPLE.com.:8443", "*.example.com:8443"},
    {"_dmarc.a-b.example", NULL},
    {"localhost", NULL},
    {"xn--bcher-kva.example", NULL},
    {"192.0.2.1", NULL},
    {"192.0.2.1/32", "192.0.2.1"},
    {"203.0.113.0/24:80-90", NULL},
    {"203.0.113.0/24/udp", NULL},
    {"0.0.0.0/0:*", NULL},
    {"[2001:db8::1]", NULL},
    {"[2001:DB8:0::1]:443", "[2001:db8::1]:443"},
    {"[2001:db8::/32]:443/udp", NULL},
    {"[::ffff:10.0.0.5]:80", "10.0.0.5:80"},
};

static const struct {
    const char *text;
    const char *says;
} wrong[] = {
    {"", "names no host"},
    {":443", "names no host"},
    {"/udp", "names no host"},
    {"*", "full"},
    {"*.*.example.com", "first labels"},
    {"a.*.example.com", "first labels"},
    {"*example.com", "first labels"},
    {"*.", "full"},
    {"https://example.com/", "only the host"},
    {"example.com/tcp", "/udp"},
    {"example.com/24", "/udp"},
    {"example.com:0", "ports"},
    {"example.com:", "ports"},
    {"example.com:65536", "ports"},
    {"example.com:90-80", "ports"},
    {"example.com:080", "ports"},
    {"example.com:80-", "ports"},
    {"example.com:80,443", "ports"},
    {"example.com:+80", "ports"},
    {"example.com:*-80", "ports"},
    {"example..com", "neither"},
    {"example.com..", "neither"},
    {".example.com", "neither"},
    {"-a.example.com", "neither"},
    {"a-.example.com", "neither"},
    {"exa mple.com", "neither"},
    {"example.com ", "neither"},
    {"user@example.com", "neither"},
    {"b\xc3\xbc"
     "cher.example",
        "xn--"},
    {"example\xe3\x80\x82"
     "com",
        "xn--"},
    {"1.2.3", "not an address"},
    {"1.2.3.4.5", "not an address"},
    {"01.2.3.4", "not an address"},
    {"256.1.1.1", "not an address"},
    {"1.2.3.0x10", "neither"},
    {"a.0x7f", "neither"},
    {"0x7f000001", "neither"},
    {"2130706433", "not an address"},
    {"a.1", "neither"},
    {"203.0.113.1/24", "behind the length"},
    {"203.0.113.0/33", "not a range"},
    {"203.0.113.0/", "not a range"},
    {"2001:db8::1", "brackets"},
    {"[2001:db8::1", "[address]"},
    {"[2001:db8::1]443", "[address]"},
    {"[192.0.2.1]", "IPv6"},
    {"[example.com]", "IPv6"},
    {"[fe80::1%eth0]", "not an address"},
    {"[2001:db8::1/32]", "behind the length"},
    {"[2001:db8::1]:", "ports"},
};

static void test_spelling(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        struct network_entry entry, again;
        char text[NETWORK_ENTRY_TEXT];
        struct err err = {0};
        if (network_entry_parse(&entry, good[i].text, &err) < 0)
            fail_msg("%s: %s", good[i].text, err.message);
        network_entry_print(&entry, text);
        assert_string_equal(text, good[i].printed ? good[i].printed : good[i].text);
        assert_int_equal(network_entry_parse(&again, text, &err), 0);
        assert_memory_equal(&again, &entry, sizeof(entry));
    }
}

static void test_mistakes_are_quoted(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        struct network_entry entry = {.first_port = 7};
        struct err err = {0};
        if (network_entry_parse(&entry, wrong[i].text, &err) == 0)
            fail_msg("accepted: %s", wrong[i].text);
        assert_int_equal(err.code, ERR_INVALID);
        if (!strstr(err.message, wrong[i].says) || !strstr(err.message, wrong[i].text))
            fail_msg("%s: %s", wrong[i].text, err.message);
        assert_int_equal(entry.first_port, 7);
    }
}

static void test_long_names(void **state)
{
    char name[400];
    struct network_entry entry;
    struct err err;
    (void)state;
    /* 253 characters in labels of 63: the longest name. */
    memset(name, 'a', sizeof(name));
    name[63] = name[127] = name[191] = '.';
    name[253] = '\0';
    assert_int_equal(network_entry_parse(&entry, name, &err), 0);
    name[253] = 'a';
    name[254] = '\0';
    assert_true(network_entry_parse(&entry, name, &err) < 0);
    name[191] = 'a';
    name[200] = '\0';
    assert_true(network_entry_parse(&entry, name, &err) < 0);
    memset(name, 'a', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    assert_true(network_entry_parse(&entry, name, &err) < 0);
}

static int check(struct network_ceiling *ceiling, const char *text, struct err *err)
{
    static struct network_policy policy;
    policy.mode = NETWORK_ALLOW;
    policy.entry_count = 1;
    assert_int_equal(network_entry_parse(&policy.entries[0], text, err), 0);
    int r = network_policy_check(&policy, ceiling, err);
    if (r < 0) {
        assert_int_equal(err->code, ERR_FORBIDDEN);
        assert_non_null(strstr(err->message, text));
    }
    return r;
}

static bool permits(struct network_ceiling *ceiling, const char *text)
{
    struct err err = {0};
    return check(ceiling, text, &err) == 0;
}

static void test_modes(void **state)
{
    static struct network_ceiling ceiling;
    static struct network_policy policy;
    struct err err = {0};
    (void)state;
    for (unsigned max = NETWORK_NONE; max < NETWORK_MODE_COUNT; max++) {
        for (unsigned mode = NETWORK_NONE; mode < NETWORK_MODE_COUNT; mode++) {
            ceiling.max_mode = max;
            policy.mode = mode;
            int r = network_policy_check(&policy, &ceiling, &err);
            assert_int_equal(r == 0, mode <= max);
            assert_true(r == 0 || err.code == ERR_FORBIDDEN);
        }
    }
    policy.mode = ceiling.max_mode = NETWORK_FULL;
    ceiling.upstream_port = 3128;
    assert_true(network_policy_check(&policy, &ceiling, &err) < 0);
    assert_int_equal(err.code, ERR_UNSUPPORTED);
    ceiling.upstream_filters = 1;
    assert_int_equal(network_policy_check(&policy, &ceiling, &err), 0);
}

static void test_closed_ranges(void **state)
{
    static struct network_ceiling ceiling = {.max_mode = NETWORK_FULL};
    (void)state;
    assert_true(permits(&ceiling, "8.8.8.8"));
    assert_false(permits(&ceiling, "10.0.0.0/8"));
    assert_false(permits(&ceiling, "0.0.0.0/0"));
    assert_false(permits(&ceiling, "[::/0]"));
    assert_false(permits(&ceiling, "169.254.169.254:80"));
    assert_true(permits(&ceiling, "metadata.example.com")); /* its addresses decide later */
    ceiling.open_count = 1;
    assert_int_equal(address_range_parse(&ceiling.open[0], "10.1.0.0/16"), 0);
    assert_true(permits(&ceiling, "10.1.2.0/24"));
    assert_true(permits(&ceiling, "10.1.0.0/16"));
    assert_false(permits(&ceiling, "10.0.0.0/8"));
    assert_false(permits(&ceiling, "10.2.0.1"));
    ceiling.closed_count = 1;
    assert_int_equal(address_range_parse(&ceiling.closed[0], "8.8.0.0/16"), 0);
    assert_false(permits(&ceiling, "8.8.8.8"));
    assert_true(permits(&ceiling, "8.0.0.0/8")); /* the closed part stays closed */
    assert_true(permits(&ceiling, "8.9.0.0/16"));
    ceiling.closed_name_count = 1;
    strcpy(ceiling.closed_names[0], "corp.example");
    assert_false(permits(&ceiling, "corp.example"));
    assert_false(permits(&ceiling, "*.corp.example"));
    assert_false(permits(&ceiling, "a.b.corp.example:22"));
    assert_true(permits(&ceiling, "xcorp.example"));
    assert_true(permits(&ceiling, "*.example"));
}

static void test_allowed_entries(void **state)
{
    static struct network_ceiling ceiling = {.max_mode = NETWORK_ALLOW};
    static const char *const allowed[] = {
        "registry.example", "*.files.example:443", "9.9.9.0/24:1000-2000/udp"};
    struct err err;
    (void)state;
    for (size_t i = 0; i < sizeof(allowed) / sizeof(allowed[0]); i++)
        assert_int_equal(network_entry_parse(&ceiling.allowed[i], allowed[i], &err), 0);
    assert_true(permits(&ceiling, "anything.example:22"));
    ceiling.allowed_count = sizeof(allowed) / sizeof(allowed[0]);
    assert_true(permits(&ceiling, "registry.example"));
    assert_true(permits(&ceiling, "registry.example:443"));
    assert_true(permits(&ceiling, "registry.example:80"));
    assert_false(permits(&ceiling, "registry.example:80-443"));
    assert_false(permits(&ceiling, "registry.example/udp"));
    assert_false(permits(&ceiling, "*.registry.example"));
    assert_true(permits(&ceiling, "*.files.example:443"));
    assert_true(permits(&ceiling, "a.files.example:443"));
    assert_true(permits(&ceiling, "*.a.files.example:443"));
    assert_false(permits(&ceiling, "files.example:443"));
    assert_false(permits(&ceiling, "a.files.example"));
    assert_true(permits(&ceiling, "9.9.9.9:1000/udp"));
    assert_false(permits(&ceiling, "9.9.9.9:1000"));
    assert_false(permits(&ceiling, "9.9.9.9:999-1000/udp"));
    assert_false(permits(&ceiling, "9.9.0.0/16:1000/udp"));
}

static void test_words(void **state)
{
    (void)state;
    for (unsigned i = REASON_FIRST; i < REASON_END; i++)
        assert_string_not_equal(network_reason_name(i), "unknown");
    for (unsigned i = ADDRESS_PUBLIC + 1; i < ADDRESS_CLASS_COUNT; i++)
        assert_string_not_equal(network_reason_name(i), "unknown");
    assert_string_equal(network_reason_name(REASON_NOT_LISTED), "not_listed");
    assert_string_equal(network_reason_name(ADDRESS_METADATA), "metadata");
    assert_string_equal(network_reason_name(0), "unknown");
    assert_string_equal(network_reason_name(REASON_END), "unknown");
    assert_string_equal(network_mode_name(NETWORK_MODE_COUNT), "unknown");
    assert_string_equal(network_protocol_name(NETWORK_PROTOCOL_COUNT), "unknown");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_spelling),
        cmocka_unit_test(test_mistakes_are_quoted),
        cmocka_unit_test(test_long_names),
        cmocka_unit_test(test_modes),
        cmocka_unit_test(test_closed_ranges),
        cmocka_unit_test(test_allowed_entries),
        cmocka_unit_test(test_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
