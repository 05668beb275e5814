/* SPDX-License-Identifier: Apache-2.0 */

/* Facts about replies that several share. */

#include "test.h"

#include "base/answer.h"

static void it_is_counted_once_while_it_has_users(void **state)
{
    struct ledger *l = ledger_new(10000, 1);
    struct answer *a = answer_new(l, 0, 1000, NULL);
    assert_non_null(a);
    size_t one = ledger_sum(l);
    assert_in_range(one, 1001, 1200);
    assert_true(answer_use(a));
    assert_int_equal(ledger_sum(l), one);
    (void)answer_keep(a);
    answer_release(a);
    answer_release(a);
    assert_int_equal(ledger_sum(l), 0); /* the keeper counts it itself */
    assert_true(answer_use(a));
    assert_int_equal(ledger_sum(l), one);
    answer_drop(a);
    assert_int_equal(ledger_sum(l), one);
    answer_release(a);
    assert_int_equal(ledger_sum(l), 0);
    ledger_free(l);
}

static void without_room_there_is_none(void **state)
{
    struct ledger *l = ledger_new(10000, 1);
    struct purse other;
    assert_null(answer_new(l, 0, 9000, NULL));
    struct answer *a = answer_keep(answer_new(l, 0, 3000, NULL));
    answer_release(a);
    purse_open(&other, l, 0);
    assert_true(purse_take(&other, 4000));
    assert_false(answer_use(a)); /* it was not counted, and cannot be now */
    purse_close(&other);
    assert_true(answer_use(a));
    answer_release(a);
    answer_drop(a);
    assert_int_equal(ledger_sum(l), 0);
    ledger_free(l);
}

static void a_size_that_no_machine_has_is_refused(void **state)
{
#ifdef __SANITIZE_ADDRESS__
    test_skip("the sanitizer ends a program that asks for so much");
#endif
    assert_null(answer_new(NULL, 0, (size_t)1 << 62, NULL));
}

static void words_of_ours_are_not_counted(void **state)
{
    struct answer *a = answer_of_text("{}");
    assert_int_equal(a->len, 2);
    assert_string_equal(a->text, "{}");
    answer_release(a);
    answer_release(NULL);
    answer_drop(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_is_counted_once_while_it_has_users),
        cmocka_unit_test(without_room_there_is_none),
        cmocka_unit_test(a_size_that_no_machine_has_is_refused),
        cmocka_unit_test(words_of_ours_are_not_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
