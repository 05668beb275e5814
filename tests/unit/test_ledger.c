/* SPDX-License-Identifier: Apache-2.0 */

/* Facts about the count of what strangers make a server hold. */

#include "test.h"

#include <errno.h>
#include <stdlib.h>

#include "base/buf.h"
#include "base/ledger.h"

enum { MAX = 1200 };

static void an_owner_may_hold_what_it_leaves_free(void **state)
{
    struct ledger *l = ledger_new(MAX, 3);
    struct purse a, b, c;
    purse_open(&a, l, 0);
    purse_open(&b, l, 1);
    purse_open(&c, l, -1);
    assert_false(purse_take(&a, MAX / 2 + 1));
    assert_true(purse_take(&a, MAX / 2));
    assert_false(purse_take(&a, 1));
    assert_true(purse_take(&b, MAX / 4)); /* as much as is free then */
    assert_false(purse_take(&b, 1));
    assert_true(purse_take(&c, MAX / 8)); /* and there is still room for the next */
    assert_int_equal(ledger_sum(l), MAX / 2 + MAX / 4 + MAX / 8);
    purse_close(&a);
    assert_true(purse_take(&b, MAX / 8));
    purse_close(&b);
    purse_close(&c);
    assert_int_equal(ledger_sum(l), 0);
    ledger_free(l);
}

/* However many keys somebody has, another one is never without room. */
static void many_greedy_owners_leave_room_for_one_more(void **state)
{
    enum { OWNERS = 40, SIZE = 1 << 20 };
    struct ledger *l = ledger_new(SIZE, OWNERS + 1);
    struct purse purses[OWNERS], last;
    for (int i = 0; i < OWNERS; i++) {
        purse_open(&purses[i], l, i);
        for (size_t step = SIZE; step > 0; step /= 2) {
            while (purse_take(&purses[i], step))
                ;
        }
    }
    purse_open(&last, l, OWNERS);
    assert_int_equal(ledger_sum(l) < SIZE, 1);
    for (int i = 0; i < OWNERS; i++) /* those who had more than their share cannot grow */
        assert_false(purse_take(&purses[i], SIZE / 4));
    purse_close(&purses[0]);
    assert_true(purse_take(&last, SIZE / 8));
    purse_close(&last);
    for (int i = 1; i < OWNERS; i++)
        purse_close(&purses[i]);
    assert_int_equal(ledger_sum(l), 0);
    ledger_free(l);
}

static void a_purse_changes_hands_with_all_it_holds(void **state)
{
    struct ledger *l = ledger_new(MAX, 2);
    struct purse a, b;
    purse_open(&a, l, -1);
    purse_open(&b, l, 1);
    assert_true(purse_take(&a, MAX / 2));
    purse_hand_to(&a, 1);
    assert_false(purse_take(&b, 1));
    purse_give(&a, MAX / 2);
    assert_true(purse_take(&b, MAX / 2));
    purse_close(&b);
    purse_close(&a);
    ledger_free(l);
}

static void nothing_is_given_back_twice(void **state)
{
    struct ledger *l = ledger_new(MAX, 1);
    struct purse a, b;
    purse_open(&a, l, 0);
    purse_open(&b, l, 0);
    assert_true(purse_take(&a, 100) && purse_take(&b, 100));
    purse_give(&a, 5000);
    purse_close(&a);
    assert_int_equal(ledger_sum(l), 100);
    assert_int_equal(ledger_peak(l), 200);
    assert_int_equal(ledger_peak(l), 100);
    purse_close(&b);
    ledger_free(l);
}

/* Two purses that fill the share of their owner and want more at one moment: the first is
 * refused and leaves its room to the second. */
static void a_refused_purse_leaves_its_room_to_the_next(void **state)
{
    struct ledger *l = ledger_new(MAX, 1);
    struct purse a, b;
    purse_open(&a, l, 0);
    purse_open(&b, l, 0);
    assert_true(purse_take(&a, MAX / 4) && purse_take(&b, MAX / 4));
    assert_false(purse_take(&a, MAX / 8)); /* control: nobody would get more */
    assert_false(purse_take(&b, MAX / 8));
    assert_false(purse_take_or_close(&a, MAX / 8, &a));
    assert_int_equal(ledger_sum(l), MAX / 4);
    assert_true(purse_take_or_close(&b, MAX / 8, &b));
    assert_int_equal(ledger_sum(l), MAX / 4 + MAX / 8);
    purse_give(&a, MAX); /* what the first still frees was given back already */
    assert_int_equal(ledger_sum(l), MAX / 4 + MAX / 8);
    purse_close(&b);
    ledger_free(l);
}

static void a_shut_ledger_refuses(void **state)
{
    struct ledger *l = ledger_new(MAX, 1);
    struct purse a;
    purse_open(&a, l, 0);
    ledger_shut(l, true);
    assert_false(purse_take(&a, 1));
    ledger_shut(l, false);
    assert_true(purse_take(&a, 1));
    purse_close(&a);
    ledger_free(l);
}

static void a_zeroed_purse_counts_nothing(void **state)
{
    struct purse none = {0};
    assert_true(purse_take(&none, SIZE_MAX));
    purse_give(&none, 1);
    purse_close(&none);
}

static void a_buffer_counts_before_it_grows(void **state)
{
    struct ledger *l = ledger_new(4096, 1);
    struct purse a;
    struct buf b;
    char bytes[1000] = {0};
    purse_open(&a, l, 0);
    buf_init(&b, 1 << 20);
    b.purse = &a.counts;
    assert_int_equal(buf_append(&b, bytes, sizeof(bytes)), 0);
    assert_int_equal(ledger_sum(l), b.cap);
    assert_false(b.is_starved);
    assert_int_equal(buf_append(&b, bytes, sizeof(bytes)), 0);
    assert_int_equal(buf_append(&b, bytes, sizeof(bytes)), -ENOMEM);
    assert_true(b.is_starved);
    assert_int_equal(b.len, 2000);
    assert_int_equal(buf_append_some(&b, bytes, sizeof(bytes)), 0);
    buf_done(&b);
    assert_int_equal(ledger_sum(l), 0);
    assert_int_equal(buf_append(&b, bytes, sizeof(bytes)), 0); /* it is counted again */
    assert_int_equal(ledger_sum(l), b.cap);
    free(buf_take(&b, NULL));
    assert_int_equal(ledger_sum(l), 0);
    purse_close(&a);
    ledger_free(l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_owner_may_hold_what_it_leaves_free),
        cmocka_unit_test(many_greedy_owners_leave_room_for_one_more),
        cmocka_unit_test(a_purse_changes_hands_with_all_it_holds),
        cmocka_unit_test(nothing_is_given_back_twice),
        cmocka_unit_test(a_refused_purse_leaves_its_room_to_the_next),
        cmocka_unit_test(a_shut_ledger_refuses),
        cmocka_unit_test(a_zeroed_purse_counts_nothing),
        cmocka_unit_test(a_buffer_counts_before_it_grows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
