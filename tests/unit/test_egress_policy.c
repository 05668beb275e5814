/* SPDX-License-Identifier: Apache-2.0 */

/* What a policy permits: each case of the semantics that is a pure decision, and what the
 * ceiling makes of a policy above it. */

#include "egress/policy.h"
#include "test.h"

#include <string.h>

static struct network_policy policy;
static struct network_ceiling ceiling;
static struct pins pins;

static const struct network_limits most = {
    UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX};

static int setup(void **state)
{
    (void)state;
    policy = (struct network_policy){.mode = NETWORK_ALLOW, .limits = most};
    ceiling =
        (struct network_ceiling){.max_mode = NETWORK_FULL, .box_max = most, .key_max = most};
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    pins_done(&pins);
    pins = (struct pins){0};
    return 0;
}

static struct address at(const char *text)
{
    struct address a;
    assert_int_equal(address_parse(&a, text), 0);
    return a;
}

static struct address_range range(const char *text)
{
    struct address_range r;
    assert_int_equal(address_range_parse(&r, text), 0);
    return r;
}

static struct policy_view view(void)
{
    return (struct policy_view){
        .policy = &policy, .ceiling = &ceiling, .pins = &pins, .now_ms = 1000};
}

/* An entry for a name, "*.name" or a range; first 0: 80 and 443. */
static struct network_entry entry(const char *target, uint16_t first, uint16_t last)
{
    struct network_entry e = {.first_port = first, .last_port = last, .is_web = first == 0};
    if (address_range_parse(&e.range, target) == 0)
        return e;
    bool is_below = strncmp(target, "*.", 2) == 0;
    e.target = is_below ? TARGET_BELOW : TARGET_NAME;
    strncpy(e.name, target + (is_below ? 2 : 0), sizeof(e.name) - 1);
    return e;
}

static struct network_entry *list(const char *target, uint16_t first, uint16_t last)
{
    policy.entries[policy.entry_count] = entry(target, first, last);
    return &policy.entries[policy.entry_count++];
}

static void pin(const char *name, const char *address)
{
    struct address a = at(address);
    pins_add(&pins, &a, name, 60, 1000);
}

static struct decision decide_at(
    const char *address, uint16_t port, enum network_protocol protocol)
{
    struct policy_view v = view();
    struct address a = at(address);
    struct decision d;
    policy_decide(&d, &v, protocol, &a, port);
    return d;
}

static uint32_t tcp(const char *address, uint16_t port)
{
    return decide_at(address, port, NETWORK_TCP).reason;
}

static uint32_t ask(const char *name)
{
    struct policy_view v = view();
    return policy_decide_name(&v, name);
}

static uint32_t give(const char *address)
{
    struct policy_view v = view();
    struct address a = at(address);
    return policy_decide_answer(&v, &a);
}

static void none_permits_nothing(void **state)
{
    (void)state;
    list("45.33.32.10", 1, 65535);
    policy.mode = NETWORK_NONE;
    assert_int_equal(tcp("45.33.32.10", 80), REASON_NO_NETWORK);
    assert_int_equal(ask("ok.example.com"), REASON_NO_NETWORK);
}

static void a_mode_that_is_not_known_permits_nothing(void **state)
{
    (void)state;
    list("45.33.32.10", 1, 65535);
    policy.mode = NETWORK_MODE_COUNT;
    assert_int_equal(tcp("45.33.32.10", 80), REASON_NO_NETWORK);
}

static void full_permits_public_addresses(void **state)
{
    (void)state;
    policy.mode = NETWORK_FULL;
    assert_int_equal(tcp("45.33.32.10", 1), 0);
    assert_int_equal(tcp("2a01:4f8::1", 65535), 0);
    assert_int_equal(decide_at("45.33.32.10", 123, NETWORK_UDP).reason, 0);
}

static void closed_addresses_say_their_class(void **state)
{
    (void)state;
    static const struct {
        const char *address;
        enum address_class class;
    } cases[] = {{"10.0.0.5", ADDRESS_PRIVATE}, {"::ffff:10.0.0.5", ADDRESS_PRIVATE},
        {"127.0.0.1", ADDRESS_LOOPBACK}, {"169.254.169.254", ADDRESS_METADATA},
        {"0.0.0.0", ADDRESS_THIS_NETWORK}, {"224.0.0.1", ADDRESS_MULTICAST},
        {"64:ff9b::a00:5", ADDRESS_NOT_GLOBAL}, {"2002:a00:5::1", ADDRESS_6TO4},
        {"fd00::1", ADDRESS_PRIVATE}, {"2001::1", ADDRESS_PROTOCOL}};
    for (int full = 0; full < 2; full++) {
        policy.mode = full ? NETWORK_FULL : NETWORK_ALLOW;
        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
            assert_int_equal(tcp(cases[i].address, 80), cases[i].class);
    }
}

static void ports_and_protocols_of_entries_count(void **state)
{
    (void)state;
    list("45.33.32.0/24", 80, 90);
    list("45.33.33.1", 0, 0);
    list("45.33.34.1", 123, 123)->protocol = NETWORK_UDP;
    assert_int_equal(tcp("45.33.32.10", 80), 0);
    assert_int_equal(tcp("45.33.32.255", 90), 0);
    assert_int_equal(tcp("45.33.32.10", 91), REASON_NOT_LISTED);
    assert_int_equal(tcp("45.33.31.10", 80), REASON_NOT_LISTED);
    assert_int_equal(tcp("45.33.33.1", 80), 0);
    assert_int_equal(tcp("45.33.33.1", 443), 0);
    assert_int_equal(tcp("45.33.33.1", 81), REASON_NOT_LISTED);
    assert_int_equal(tcp("45.33.34.1", 123), REASON_NOT_LISTED);
    assert_int_equal(decide_at("45.33.34.1", 123, NETWORK_UDP).reason, 0);
    assert_int_equal(decide_at("45.33.32.10", 80, NETWORK_UDP).reason, REASON_NOT_LISTED);
}

static void an_address_of_a_name_needs_a_look_up_first(void **state)
{
    (void)state;
    list("ok.example.com", 443, 443);
    assert_int_equal(tcp("45.33.32.10", 443), REASON_NOT_LISTED);
    pin("ok.example.com", "45.33.32.10");
    struct decision d = decide_at("45.33.32.10", 443, NETWORK_TCP);
    assert_int_equal(d.reason, 0);
    assert_true(d.is_by_name);
    assert_string_equal(d.host, "ok.example.com");
    assert_int_equal(tcp("45.33.32.10", 80), REASON_NOT_LISTED);
    assert_int_equal(tcp("45.33.32.11", 443), REASON_NOT_LISTED);
}

static void an_entry_for_the_address_needs_no_server_name(void **state)
{
    (void)state;
    list("ok.example.com", 443, 443);
    list("45.33.32.10", 443, 443);
    pin("ok.example.com", "45.33.32.10");
    struct decision d = decide_at("45.33.32.10", 443, NETWORK_TCP);
    assert_int_equal(d.reason, 0);
    assert_false(d.is_by_name);
    assert_string_equal(d.host, "ok.example.com");
}

static void a_name_below_is_not_the_name_itself(void **state)
{
    (void)state;
    list("*.example.com", 443, 443);
    assert_int_equal(ask("a.example.com"), 0);
    assert_int_equal(ask("a.b.example.com"), 0);
    assert_int_equal(ask("example.com"), REASON_NOT_LISTED);
    assert_int_equal(ask("badexample.com"), REASON_NOT_LISTED);
    assert_int_equal(ask("example.com.evil.net"), REASON_NOT_LISTED);
}

static void a_name_that_resolves_to_a_closed_address_is_not_given(void **state)
{
    (void)state;
    list("ok.example.com", 443, 443);
    assert_int_equal(give("10.9.0.5"), ADDRESS_PRIVATE);
    assert_int_equal(give("127.0.0.1"), ADDRESS_LOOPBACK);
    assert_int_equal(give("45.33.32.10"), 0);
    /* and a pin would not help */
    pin("ok.example.com", "10.9.0.5");
    assert_int_equal(tcp("10.9.0.5", 443), ADDRESS_PRIVATE);
}

static void an_opened_range_is_usable_only_where_it_is_listed(void **state)
{
    (void)state;
    ceiling.open[ceiling.open_count++] = range("10.9.0.0/16");
    assert_int_equal(tcp("10.9.0.5", 80), REASON_NOT_LISTED);
    list("10.9.0.5", 80, 80);
    list("mirror.example.com", 443, 443);
    assert_int_equal(tcp("10.9.0.5", 80), 0);
    assert_int_equal(tcp("10.9.0.6", 80), REASON_NOT_LISTED);
    assert_int_equal(tcp("10.8.0.5", 80), ADDRESS_PRIVATE);
    assert_int_equal(give("10.9.0.6"), 0);
    pin("mirror.example.com", "10.9.0.6");
    assert_int_equal(tcp("10.9.0.6", 443), 0);
    policy.mode = NETWORK_FULL;
    assert_int_equal(tcp("10.9.0.5", 80), ADDRESS_PRIVATE);
    assert_int_equal(give("10.9.0.6"), ADDRESS_PRIVATE);
}

static void what_the_operator_closed_stays_closed(void **state)
{
    (void)state;
    ceiling.closed[ceiling.closed_count++] = range("45.33.32.0/24");
    ceiling.open[ceiling.open_count++] = range("45.33.32.0/24");
    strcpy(ceiling.closed_names[ceiling.closed_name_count++], "evil.example.com");
    list("45.33.32.10", 80, 80);
    list("*.example.com", 80, 80);
    assert_int_equal(tcp("45.33.32.10", 80), REASON_CLOSED_BY_OPERATOR);
    assert_int_equal(give("45.33.32.10"), REASON_CLOSED_BY_OPERATOR);
    assert_int_equal(ask("evil.example.com"), REASON_CLOSED_BY_OPERATOR);
    assert_int_equal(ask("a.evil.example.com"), REASON_CLOSED_BY_OPERATOR);
    assert_int_equal(ask("ok.example.com"), 0);
    pin("evil.example.com", "45.33.33.1");
    assert_int_equal(tcp("45.33.33.1", 80), REASON_NOT_LISTED);
    policy.mode = NETWORK_FULL;
    assert_int_equal(ask("evil.example.com"), REASON_CLOSED_BY_OPERATOR);
}

static void full_never_asks_for_private_names(void **state)
{
    (void)state;
    policy.mode = NETWORK_FULL;
    static const char *const closed[] = {"localhost", "intranet", "printer.local",
        "metadata.google.internal", "x.home.arpa", "abc.onion", "a.invalid", "a.test",
        "nas.lan", "srv.corp", "tv.home", "a.localhost"};
    for (size_t i = 0; i < sizeof(closed) / sizeof(closed[0]); i++)
        assert_int_equal(ask(closed[i]), REASON_NAME_CLOSED);
    assert_int_equal(ask("example.com"), 0);
    assert_int_equal(ask("mylocal.com"), 0);
}

static void reverse_names_are_decided_by_their_address(void **state)
{
    (void)state;
    policy.mode = NETWORK_FULL;
    assert_int_equal(ask("5.0.9.10.in-addr.arpa"), ADDRESS_PRIVATE);
    assert_int_equal(ask("10.32.33.45.in-addr.arpa"), 0);
    policy.mode = NETWORK_ALLOW;
    assert_int_equal(ask("10.32.33.45.in-addr.arpa"), REASON_NOT_LISTED);
    list("45.33.32.10", 80, 80);
    assert_int_equal(ask("10.32.33.45.in-addr.arpa"), 0);
}

static void zones_above_reverse_names_are_not_asked_for(void **state)
{
    (void)state;
    policy.mode = NETWORK_FULL;
    assert_int_equal(ask("9.10.in-addr.arpa"), REASON_NAME_CLOSED);
    assert_int_equal(ask("x.5.0.9.10.in-addr.arpa"), REASON_NAME_CLOSED);
    assert_int_equal(ask("d.f.ip6.arpa"), REASON_NAME_CLOSED);
    assert_int_equal(ask("10.32.33.45.in-addr.arpa"), 0);
}

/* Only what is public and not listed may be asked about. */
static void ask_asks_about_public_addresses_only(void **state)
{
    static const char *const closed[] = {"10.9.0.5", "169.254.169.254", "127.0.0.1", "fd00::1",
        "::ffff:10.0.0.5", "64:ff9b::a09:5", "198.18.0.9"};
    (void)state;
    policy.mode = NETWORK_ASK;
    list("45.33.32.10/32", 80, 80);
    assert_int_equal(decide_at("45.33.32.10", 80, NETWORK_TCP).reason, 0);
    assert_true(decide_at("45.33.32.10", 81, NETWORK_TCP).must_ask);
    assert_true(decide_at("2a01:4f8:1::10", 443, NETWORK_TCP).must_ask);
    for (size_t i = 0; i < sizeof(closed) / sizeof(closed[0]); i++) {
        struct policy_view v = view();
        struct address a = at(closed[i]);
        struct decision d = decide_at(closed[i], 80, NETWORK_TCP);
        assert_true(d.reason != 0 && !d.must_ask);
        assert_true(policy_decide_approved(&v, &a) != 0);
    }
    ceiling.open[ceiling.open_count++] =
        range("10.9.0.0/16"); /* for entries, not for answers */
    struct policy_view v = view();
    struct address opened = at("10.9.0.5");
    assert_false(decide_at("10.9.0.5", 80, NETWORK_TCP).must_ask);
    assert_int_equal(policy_decide_approved(&v, &opened), ADDRESS_PRIVATE);
}

static void ask_answers_names_that_are_not_listed_with_stand_ins(void **state)
{
    (void)state;
    policy.mode = NETWORK_ASK;
    list("ok.example.com", 80, 80);
    struct policy_view v = view();
    assert_false(policy_name_is_asked(&v, "ok.example.com"));
    assert_true(policy_name_is_asked(&v, "x.example.com"));
    assert_int_equal(ask("x.example.com"), 0);
    assert_int_equal(ask("printer.local"), REASON_NAME_CLOSED);
    struct address stand_in = pins_stand_in(&pins, "x.example.com", 1000);
    struct decision d;
    v = view();
    policy_decide(&d, &v, NETWORK_TCP, &stand_in, 443);
    assert_true(d.must_ask && d.is_by_name);
    assert_string_equal(d.host, "x.example.com");
}

/* A proxy that resolves would take the name for the address. */
static void a_name_that_is_a_number_is_not_asked_for(void **state)
{
    static const char *const names[] = {"169.254.169.254", "127.1", "1.0x7f", "x.0x"};
    (void)state;
    ceiling.upstream_port = 3128;
    ceiling.upstream_resolves = 1;
    list("*.254", 1, 65535); /* no server of ours says so, but one that was taken over may */
    assert_int_equal(ask("169.254.169.254"), REASON_NAME_CLOSED);
    policy.mode = NETWORK_FULL;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        assert_int_equal(ask(names[i]), REASON_NAME_CLOSED);
    assert_int_equal(ask("169.254.169.254.example.com"), 0);
}

static void nat64_opens_nothing_that_is_closed_behind_it(void **state)
{
    (void)state;
    ceiling.open[ceiling.open_count++] = range("64:ff9b::/96");
    list("64:ff9b::/96", 1, 65535);
    assert_int_equal(tcp("64:ff9b::2d21:200a", 80), 0); /* 45.33.32.10 */
    assert_int_equal(tcp("64:ff9b::a9fe:a9fe", 80), ADDRESS_METADATA);
    assert_int_equal(give("64:ff9b::a00:5"), ADDRESS_PRIVATE);
    ceiling.closed[ceiling.closed_count++] = range("45.33.32.0/24");
    assert_int_equal(tcp("64:ff9b::2d21:200a", 80), REASON_CLOSED_BY_OPERATOR);
}

static void a_server_name_must_be_listed_with_the_port(void **state)
{
    (void)state;
    list("ok.example.com", 443, 443);
    list("*.wild.example.com", 443, 443);
    struct policy_view v = view();
    assert_int_equal(policy_decide_server(&v, "ok.example.com", 443), 0);
    assert_int_equal(policy_decide_server(&v, "a.wild.example.com", 443), 0);
    assert_int_equal(
        policy_decide_server(&v, "neighbour.example.com", 443), REASON_SERVER_NAME);
    assert_int_equal(policy_decide_server(&v, "ok.example.com", 8443), REASON_SERVER_NAME);
}

static void a_stand_in_address_means_its_name(void **state)
{
    (void)state;
    ceiling.upstream_port = 3128;
    ceiling.upstream_resolves = 1;
    list("ok.example.com", 443, 443);
    struct address a = pins_stand_in(&pins, "ok.example.com", 1000);
    struct address b = pins_stand_in(&pins, "other.example.com", 1000);
    char text[ADDRESS_TEXT];
    address_print(&a, text);
    assert_int_equal(tcp(text, 443), 0);
    assert_int_equal(tcp(text, 80), REASON_NOT_LISTED);
    address_print(&b, text);
    assert_int_equal(tcp(text, 443), REASON_NOT_LISTED);
    assert_int_equal(tcp("198.19.255.1", 443), REASON_NOT_LISTED);
    ceiling.upstream_resolves = 0;
    assert_int_equal(tcp(text, 443), ADDRESS_BENCHMARKING);
}

/* --- the ceiling */

static void a_policy_within_the_ceiling_stays(void **state)
{
    (void)state;
    list("ok.example.com", 0, 0);
    policy.limits.connections = 10;
    ceiling.box_max.connections = 5;
    assert_true(policy_enforce(&policy, &ceiling));
    assert_int_equal(policy.mode, NETWORK_ALLOW);
    assert_int_equal(policy.limits.connections, 5);
}

static void assert_lowered(void)
{
    assert_false(policy_enforce(&policy, &ceiling));
    assert_int_equal(policy.mode, NETWORK_NONE);
    assert_int_equal(tcp("45.33.32.10", 80), REASON_NO_NETWORK);
}

static void a_mode_above_the_ceiling_becomes_none(void **state)
{
    (void)state;
    ceiling.max_mode = NETWORK_ALLOW;
    policy.mode = NETWORK_FULL;
    assert_lowered();
}

static void an_entry_for_a_closed_range_makes_the_policy_none(void **state)
{
    (void)state;
    list("ok.example.com", 0, 0);
    list("10.0.0.0/8", 80, 80);
    assert_lowered();
}

static void a_wide_range_with_a_closed_one_in_it_makes_the_policy_none(void **state)
{
    (void)state;
    list("0.0.0.0/0", 80, 80);
    assert_lowered();
}

static void full_through_a_proxy_that_does_not_filter_becomes_none(void **state)
{
    (void)state;
    policy.mode = NETWORK_FULL;
    ceiling.upstream_port = 3128;
    ceiling.upstream_filters = 1;
    assert_true(policy_enforce(&policy, &ceiling));
    ceiling.upstream_filters = 0;
    assert_lowered();
}

static void entries_must_be_covered_by_what_is_allowed(void **state)
{
    (void)state;
    static const struct {
        const char *target;
        uint16_t first, last;
        bool is_covered;
    } cases[] = {{"ok.example.com", 443, 443, true}, {"ok.example.com", 0, 0, false},
        {"a.wild.example.com", 0, 0, true}, {"*.wild.example.com", 80, 80, true},
        {"*.b.wild.example.com", 0, 0, true}, {"wild.example.com", 80, 80, false},
        {"*.example.com", 80, 80, false}, {"45.33.32.0/25", 81, 89, true},
        {"45.33.32.0/23", 81, 81, false}, {"45.33.32.1", 80, 91, false}};
    ceiling.max_mode = NETWORK_ALLOW;
    ceiling.allowed[0] = entry("ok.example.com", 443, 443);
    ceiling.allowed[1] = entry("*.wild.example.com", 80, 80);
    ceiling.allowed[2] = entry("*.wild.example.com", 443, 443);
    ceiling.allowed[3] = entry("45.33.32.0/24", 80, 90);
    ceiling.allowed_count = 4;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        policy.mode = NETWORK_ALLOW;
        policy.entry_count = 0;
        list(cases[i].target, cases[i].first, cases[i].last);
        assert_int_equal(policy_enforce(&policy, &ceiling), cases[i].is_covered);
    }
}

static void an_unreadable_policy_is_none(void **state)
{
    (void)state;
    struct network_policy good = policy;
    good.entries[0] = entry("ok.example.com", 1, 2);
    good.entry_count = 1;
    assert_true(network_policy_is_valid(&good));

    policy = good;
    policy.entry_count = NETWORK_MAX_ENTRIES + 1;
    assert_lowered();
    policy = good;
    policy.mode = NETWORK_MODE_COUNT;
    assert_lowered();
    policy = good;
    memset(policy.entries[0].name, 'a', NETWORK_NAME);
    assert_lowered();
    policy = good;
    policy.entries[0].target = 9;
    assert_lowered();
    policy = good;
    policy.entries[0].protocol = NETWORK_DNS;
    assert_lowered();
    policy = good;
    policy.entries[0].target = TARGET_RANGE;
    policy.entries[0].range.bits = 129;
    assert_lowered();
    policy = good;
    policy.limits.bytes_s = 0;
    assert_lowered();
    /* what is left must not be used, and its limits are the operator's */
    assert_int_equal(policy.limits.bytes_s, UINT64_MAX);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(none_permits_nothing),
        CASE(a_mode_that_is_not_known_permits_nothing),
        CASE(full_permits_public_addresses),
        CASE(closed_addresses_say_their_class),
        CASE(ports_and_protocols_of_entries_count),
        CASE(an_address_of_a_name_needs_a_look_up_first),
        CASE(an_entry_for_the_address_needs_no_server_name),
        CASE(a_name_below_is_not_the_name_itself),
        CASE(a_name_that_resolves_to_a_closed_address_is_not_given),
        CASE(an_opened_range_is_usable_only_where_it_is_listed),
        CASE(what_the_operator_closed_stays_closed),
        CASE(full_never_asks_for_private_names),
        CASE(reverse_names_are_decided_by_their_address),
        CASE(zones_above_reverse_names_are_not_asked_for),
        CASE(a_name_that_is_a_number_is_not_asked_for),
        CASE(ask_asks_about_public_addresses_only),
        CASE(ask_answers_names_that_are_not_listed_with_stand_ins),
        CASE(nat64_opens_nothing_that_is_closed_behind_it),
        CASE(a_server_name_must_be_listed_with_the_port),
        CASE(a_stand_in_address_means_its_name),
        CASE(a_policy_within_the_ceiling_stays),
        CASE(a_mode_above_the_ceiling_becomes_none),
        CASE(an_entry_for_a_closed_range_makes_the_policy_none),
        CASE(a_wide_range_with_a_closed_one_in_it_makes_the_policy_none),
        CASE(full_through_a_proxy_that_does_not_filter_becomes_none),
        CASE(entries_must_be_covered_by_what_is_allowed),
        CASE(an_unreadable_policy_is_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
