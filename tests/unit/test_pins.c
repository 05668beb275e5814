/* SPDX-License-Identifier: Apache-2.0 */

/* Pins of a box: names and the addresses that were given out for them. */

#include "egress/pins.h"
#include "test.h"

#include <stdio.h>
#include <string.h>

enum { MINUTES = 60 * 1000 };

static struct address parse(const char *text)
{
    struct address a;
    assert_int_equal(address_parse(&a, text), 0);
    return a;
}

static bool has(const struct pins *p, const struct address *a, const char *name, uint64_t now)
{
    size_t at = 0;
    for (const char *found; (found = pins_next(p, a, now, &at)) != NULL;)
        if (strcmp(found, name) == 0)
            return true;
    return false;
}

static void test_names_of_an_address(void **state)
{
    struct pins p = {0};
    struct address a = parse("8.8.4.4");
    struct address b = parse("2606:4700::1");
    size_t at = 0;
    (void)state;
    assert_null(pins_next(&p, &a, 0, &at));
    pins_add(&p, &a, "one.example", 5, 0);
    pins_add(&p, &a, "two.example", 5, 0);
    pins_add(&p, &b, "one.example", 5, 0);
    assert_string_equal(pins_next(&p, &a, 1, &at), "two.example");
    assert_string_equal(pins_next(&p, &a, 1, &at), "one.example");
    assert_null(pins_next(&p, &a, 1, &at));
    pins_add(&p, &a, "one.example", 5, 2);
    at = 0;
    assert_string_equal(pins_next(&p, &a, 2, &at), "one.example");
    assert_int_equal(p.count, 3);
    assert_false(has(&p, &b, "two.example", 2));
    pins_done(&p);
}

static void test_life(void **state)
{
    struct pins p = {0};
    struct address a = parse("8.8.4.4");
    (void)state;
    pins_add(&p, &a, "short", 0, 1000);
    pins_add(&p, &a, "long", 3600, 1000);
    pins_add(&p, &a, "endless", UINT32_MAX, 1000);
    assert_true(has(&p, &a, "short", 999 + 10 * MINUTES));
    assert_false(has(&p, &a, "short", 1000 + 10 * MINUTES));
    assert_true(has(&p, &a, "long", 1000 + 59 * MINUTES));
    assert_false(has(&p, &a, "long", 1000 + 60 * MINUTES));
    assert_false(has(&p, &a, "endless", 1000 + (uint64_t)PINS_MAX_S * 1000));
    /* a look-up with a short TTL does not shorten a pin */
    pins_add(&p, &a, "long", 1, 2000);
    assert_true(has(&p, &a, "long", 1000 + 59 * MINUTES));
    pins_done(&p);
}

static void test_oldest_goes(void **state)
{
    struct pins p = {0};
    struct address a = parse("8.8.4.4");
    char name[16];
    (void)state;
    for (unsigned i = 0; i < PINS_MAX; i++) {
        (void)snprintf(name, sizeof(name), "n%u", i);
        pins_add(&p, &a, name, 60, i);
    }
    pins_add(&p, &a, "n0", 60, 600); /* refreshed: n1 is the oldest now */
    pins_add(&p, &a, "new", 60, 601);
    assert_int_equal(p.count, PINS_MAX);
    assert_true(has(&p, &a, "n0", 602) && has(&p, &a, "new", 602));
    assert_false(has(&p, &a, "n1", 602));
    assert_true(has(&p, &a, "n2", 602));
    pins_done(&p);
}

static void test_stand_ins(void **state)
{
    struct pins p = {0};
    char name[16], text[ADDRESS_TEXT];
    (void)state;
    struct address first = pins_stand_in(&p, "a.example", 0);
    struct address second = pins_stand_in(&p, "b.example", 0);
    address_print(&first, text);
    assert_string_equal(text, "198.18.0.1");
    assert_memory_not_equal(&first, &second, sizeof(first));
    assert_true(has(&p, &first, "a.example", 1));
    struct address again = pins_stand_in(&p, "a.example", 1);
    assert_memory_equal(&first, &again, sizeof(first));
    /* a real address of the same name is not its stand-in */
    struct address real = parse("8.8.4.4");
    pins_add(&p, &real, "c.example", 60, 1);
    struct address third = pins_stand_in(&p, "c.example", 1);
    assert_true(pins_is_stand_in(&third) && !pins_is_stand_in(&real));
    /* after a whole round of addresses, one that is in use is left out */
    for (unsigned i = 0; i < 1u << 17; i++) {
        (void)snprintf(name, sizeof(name), "n%u", i);
        struct address a = pins_stand_in(&p, name, 2);
        assert_true(pins_is_stand_in(&a));
        size_t at = 0;
        assert_string_equal(pins_next(&p, &a, 2, &at), name);
        assert_null(pins_next(&p, &a, 2, &at));
        again = pins_stand_in(&p, "a.example", 2);
        assert_memory_equal(&first, &again, sizeof(first));
    }
    struct address outside = parse("198.20.0.0");
    assert_false(pins_is_stand_in(&outside));
    pins_done(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names_of_an_address),
        cmocka_unit_test(test_life),
        cmocka_unit_test(test_oldest_goes),
        cmocka_unit_test(test_stand_ins),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
