/* SPDX-License-Identifier: Apache-2.0 */

/* One key cannot take all places of sessions on backends. */

#include "places/slots.h"

#include "test.h"

static unsigned take_all(struct slots *slots, const char *owner, pid_t first)
{
    unsigned count = 0;
    for (struct slot *slot; (slot = slots_find(slots, owner)); count++)
        slots_take(slots, slot, first + (pid_t)count, owner, -1);
    return count;
}

static void a_key_leaves_room_for_others(void **state)
{
    struct slots slots = {0};
    assert_int_equal(take_all(&slots, "a", 1000), SLOTS_MAX / 2);
    assert_int_equal(take_all(&slots, "b", 2000), SLOTS_MAX / 4);
    assert_non_null(slots_find(&slots, "c"));
    assert_null(slots_find(&slots, "a"));
}

static void a_slot_is_free_again_after_its_process(void **state)
{
    struct slots slots = {0};
    (void)take_all(&slots, "a", 1000);
    slots_leave(&slots, 5); /* of no session */
    assert_null(slots_find(&slots, "a"));
    slots_leave(&slots, 1003);
    assert_int_equal(slots.count, SLOTS_MAX / 2 - 1);
    assert_non_null(slots_find(&slots, "a"));
}

static void callers_without_a_key_share_all(void **state)
{
    struct slots slots = {0};
    assert_int_equal(take_all(&slots, "", 1000), SLOTS_MAX);
    assert_null(slots_find(&slots, "a"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_key_leaves_room_for_others),
        cmocka_unit_test(a_slot_is_free_again_after_its_process),
        cmocka_unit_test(callers_without_a_key_share_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
