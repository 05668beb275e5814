/* SPDX-License-Identifier: Apache-2.0 */

/* Limits of a box and of its key, by a clock that the test turns. */

#include "egress/limits.h"
#include "test.h"

static const struct network_limits none = {
    UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX};

static void limit(struct account *a, struct account *key, const struct network_limits *limits)
{
    *a = (struct account){.parent = key};
    account_limit(a, limits, false, 1000);
}

static void without_limits_everything_passes(void **state)
{
    (void)state;
    struct account a;
    limit(&a, NULL, &none);
    for (int i = 0; i < 100000; i++)
        assert_true(account_connect(&a, 1000));
    assert_true(account_rate(&a, SENT, 1000) == UINT64_MAX);
    account_move(&a, SENT, UINT64_C(1) << 60);
    assert_true(account_left(&a, SENT) == UINT64_MAX);
    assert_false(account_is_spent(&a));
}

static void a_bucket_fills_with_time_up_to_its_burst(void **state)
{
    (void)state;
    struct bucket b = {0};
    bucket_set(&b, 1000, 200, 5000);
    assert_int_equal(bucket_level(&b, 5000), 200);
    bucket_take(&b, 200);
    assert_int_equal(bucket_level(&b, 5000), 0);
    assert_int_equal(bucket_level(&b, 5050), 50);
    assert_int_equal(bucket_level(&b, 9000), 200);
    bucket_take(&b, 300); /* a datagram larger than what is left */
    assert_int_equal(bucket_level(&b, 9050), 0);
    assert_int_equal(bucket_level(&b, 9150), 50);
    assert_int_equal(bucket_level(&b, 100), 50); /* a clock that goes back fills nothing */
}

static void slow_rates_do_not_lose_parts_of_tokens(void **state)
{
    (void)state;
    struct bucket b = {0};
    bucket_set(&b, 3, 3, 1000);
    bucket_take(&b, 3);
    unsigned taken = 0;
    for (uint64_t now = 1001; now <= 11000; now++) {
        if (bucket_level(&b, now)) {
            bucket_take(&b, 1);
            taken++;
        }
    }
    assert_int_equal(taken, 30);
}

static void connections_at_a_time_are_limited(void **state)
{
    (void)state;
    struct network_limits limits = none;
    struct account a;
    limits.connections = 2;
    limit(&a, NULL, &limits);
    assert_true(account_connect(&a, 1000) && account_connect(&a, 1000));
    assert_false(account_connect(&a, 1000));
    account_disconnect(&a);
    assert_true(account_connect(&a, 1000));
}

static void connections_in_all_are_limited(void **state)
{
    (void)state;
    struct network_limits limits = none;
    struct account a;
    limits.connections_all = 2;
    limit(&a, NULL, &limits);
    for (int i = 0; i < 2; i++) {
        assert_true(account_connect(&a, 1000));
        account_disconnect(&a);
    }
    assert_false(account_connect(&a, 1000));
}

static void a_refused_connection_was_none(void **state)
{
    (void)state;
    struct network_limits limits = none;
    struct account a;
    limits.connections_all = 1;
    limit(&a, NULL, &limits);
    assert_true(account_connect(&a, 1000));
    account_refuse(&a);
    assert_true(account_connect(&a, 1000));
}

static void attempts_per_second_are_limited(void **state)
{
    (void)state;
    struct network_limits limits = none;
    struct account a;
    limits.connections_s = 10;
    limit(&a, NULL, &limits);
    for (int i = 0; i < 10; i++)
        assert_true(account_connect(&a, 1000));
    assert_false(account_connect(&a, 1000));
    assert_true(account_connect(&a, 1100));
    assert_false(account_connect(&a, 1100));
}

static void lookups_per_second_are_limited(void **state)
{
    (void)state;
    struct network_limits limits = none;
    struct account a;
    limits.connections_s = 5;
    limit(&a, NULL, &limits);
    for (int i = 0; i < 5 * QUESTIONS_PER_CONNECTION; i++) {
        assert_true(account_ask(&a, 1000));
        account_answered(&a);
    }
    assert_false(account_ask(&a, 1000));
    assert_int_equal(a.lookups, 0);
    assert_true(account_connect(&a, 1000)); /* connections have a rate of their own */
    assert_true(account_ask(&a, 1100));
    assert_false(account_ask(&a, 1100));
}

static void both_box_and_key_must_agree(void **state)
{
    (void)state;
    struct network_limits of_key = none;
    struct account key = {0};
    struct account a;
    struct account b;
    of_key.connections = 3;
    of_key.lookups = 1;
    of_key.bytes_s = 100000;
    account_limit(&key, &of_key, true, 1000);
    limit(&a, &key, &none);
    limit(&b, &key, &none);
    assert_true(account_connect(&a, 1000) && account_connect(&b, 1000));
    assert_true(account_connect(&a, 1000));
    assert_false(account_connect(&b, 1000));
    assert_int_equal(b.connections, 1);
    assert_int_equal(key.connections, 3);
    assert_true(account_ask(&a, 1000));
    assert_false(account_ask(&b, 1000));
    assert_int_equal(b.lookups, 0);
    account_answered(&a);
    assert_true(account_ask(&b, 1000));
    assert_int_equal(account_rate(&a, SENT, 1000), 20000);
    account_move(&b, SENT, 20000);
    assert_int_equal(account_rate(&a, SENT, 1000), 0);
    assert_int_equal(account_rate(&a, RECEIVED, 1000), 20000);
}

static void a_box_that_floods_leaves_its_key_to_others(void **state)
{
    (void)state;
    struct network_limits slow = none;
    struct network_limits fast = none;
    struct account key, flood, other;
    slow.connections_s = 10;
    fast.connections_s = 20;
    limit(&key, NULL, &fast);
    limit(&flood, &key, &slow);
    limit(&other, &key, &slow);
    unsigned allowed = 0;
    for (int i = 0; i < 1000; i++)
        allowed += account_attempt(&flood, 1000);
    assert_int_equal(allowed, 10);
    for (int i = 0; i < 10; i++)
        assert_true(account_attempt(&other, 1000));
    assert_false(account_attempt(&other, 1000));
}

static void a_key_has_no_limit_over_the_life_of_boxes(void **state)
{
    (void)state;
    struct network_limits limits = none;
    struct account key = {0};
    struct account a;
    limits.connections_all = 1;
    limits.sent_bytes = 1;
    account_limit(&key, &limits, true, 1000);
    limit(&a, &key, &none);
    assert_true(account_connect(&a, 1000) && account_connect(&a, 1000));
    account_move(&a, SENT, 1000);
    assert_false(account_is_spent(&key));
}

static void bytes_are_counted_down_in_each_direction(void **state)
{
    (void)state;
    struct network_limits limits = none;
    struct account a;
    limits.sent_bytes = 1000;
    limits.received_bytes = 2000;
    limit(&a, NULL, &limits);
    account_move(&a, SENT, 999);
    account_move(&a, RECEIVED, 1999);
    assert_int_equal(account_left(&a, SENT), 1);
    assert_int_equal(account_left(&a, RECEIVED), 1);
    assert_false(account_is_spent(&a));
    account_move(&a, RECEIVED, 1);
    assert_true(account_is_spent(&a));
    limits.received_bytes = 3000; /* what was counted stays */
    account_limit(&a, &limits, false, 1000);
    assert_int_equal(account_left(&a, RECEIVED), 1000);
}

static void owners_live_as_long_as_their_boxes(void **state)
{
    (void)state;
    struct owner *list = NULL;
    struct owner *one = owner_join(&list, 1, &none, 1000);
    struct owner *two = owner_join(&list, 2, &none, 1000);
    assert_ptr_equal(owner_join(&list, 1, &none, 1000), one);
    assert_ptr_not_equal(one, two);
    owner_leave(&list, one);
    owner_leave(&list, two);
    assert_ptr_equal(list, one);
    owner_leave(&list, one);
    assert_null(list);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_limits_everything_passes),
        cmocka_unit_test(a_bucket_fills_with_time_up_to_its_burst),
        cmocka_unit_test(slow_rates_do_not_lose_parts_of_tokens),
        cmocka_unit_test(connections_at_a_time_are_limited),
        cmocka_unit_test(connections_in_all_are_limited),
        cmocka_unit_test(a_refused_connection_was_none),
        cmocka_unit_test(attempts_per_second_are_limited),
        cmocka_unit_test(lookups_per_second_are_limited),
        cmocka_unit_test(both_box_and_key_must_agree),
        cmocka_unit_test(a_box_that_floods_leaves_its_key_to_others),
        cmocka_unit_test(a_key_has_no_limit_over_the_life_of_boxes),
        cmocka_unit_test(bytes_are_counted_down_in_each_direction),
        cmocka_unit_test(owners_live_as_long_as_their_boxes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
