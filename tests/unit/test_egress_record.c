/* SPDX-License-Identifier: Apache-2.0 */

/* The record of what a box tried. */

#include "egress/record.h"
#include "test.h"

#include <stdio.h>

static struct record_ref ref_of(unsigned number, uint16_t port, uint32_t reason)
{
    struct record_ref ref = {
        .key = {.is_allowed = reason == 0, .port = port, .reason = reason}};
    (void)snprintf(ref.key.host, sizeof(ref.key.host), "host%u.example.com", number);
    return ref;
}

static void attempts_of_one_kind_share_a_row(void **state)
{
    (void)state;
    struct record r = {0};
    struct record_ref a = ref_of(1, 443, 0);
    struct record_ref b = ref_of(1, 443, 0);
    assert_true(record_try(&r, &a));
    assert_false(record_try(&r, &b));
    record_move(&r, &a, 10, 20);
    record_move(&r, &b, 1, 2);
    assert_int_equal(r.count, 1);
    assert_int_equal(r.rows[0].count, 2);
    assert_int_equal(r.rows[0].sent, 11);
    assert_int_equal(r.rows[0].received, 22);
    assert_int_equal(r.sent, 11);
    record_done(&r);
}

static void host_port_protocol_and_reason_tell_rows_apart(void **state)
{
    (void)state;
    struct record r = {0};
    struct record_ref refs[] = {ref_of(1, 443, 0), ref_of(2, 443, 0), ref_of(1, 80, 0),
        ref_of(1, 443, REASON_NOT_LISTED), ref_of(1, 443, REASON_SERVER_NAME),
        ref_of(1, 443, 0)};
    refs[5].key.protocol = NETWORK_UDP;
    for (size_t i = 0; i < 6; i++)
        assert_true(record_try(&r, &refs[i]));
    assert_int_equal(r.count, 6);
    record_done(&r);
}

static void attempts_beyond_the_last_row_are_counted(void **state)
{
    (void)state;
    struct record r = {0};
    for (unsigned i = 0; i < NETWORK_MAX_ROWS; i++) {
        struct record_ref ref = ref_of(i, 443, 0);
        assert_true(record_try(&r, &ref));
    }
    struct record_ref late = ref_of(1000, 443, 0);
    struct record_ref known = ref_of(5, 443, 0);
    assert_false(record_try(&r, &late));
    assert_false(record_try(&r, &late));
    assert_false(record_try(&r, &known));
    record_move(&r, &late, 100, 200);
    assert_int_equal(r.count, NETWORK_MAX_ROWS);
    assert_int_equal(r.more, 2);
    assert_int_equal(r.rows[5].count, 2);
    assert_int_equal(r.sent, 100); /* the totals have them */
    record_done(&r);
}

static void a_connection_outlives_its_record(void **state)
{
    (void)state;
    struct record r = {0};
    struct record_ref other = ref_of(1, 443, 0);
    struct record_ref a = ref_of(2, 443, 0);
    (void)record_try(&r, &other);
    (void)record_try(&r, &a);
    record_move(&r, &a, 10, 10);
    r.is_limit_hit = true;
    record_clear(&r);
    assert_int_equal(r.count, 0);
    assert_false(r.is_limit_hit);
    record_move(&r, &a, 5, 6);
    record_move(&r, &a, 1, 1);
    assert_int_equal(r.count, 1);
    assert_string_equal(r.rows[0].host, "host2.example.com");
    assert_int_equal(r.rows[0].count, 0);
    assert_int_equal(r.rows[0].sent, 6);
    assert_int_equal(r.received, 7);
    record_done(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attempts_of_one_kind_share_a_row),
        cmocka_unit_test(host_port_protocol_and_reason_tell_rows_apart),
        cmocka_unit_test(attempts_beyond_the_last_row_are_counted),
        cmocka_unit_test(a_connection_outlives_its_record),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
