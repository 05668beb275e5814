/* SPDX-License-Identifier: Apache-2.0 */

/* Facts about API keys. */

#include "test.h"

#include <string.h>

#include "state/keys.h"

static void keys_are_found_by_their_secret_only(void **state)
{
    struct keys keys = {0};
    struct strv problems = {0};

    keys_add_list(&keys, "env", "api-key", " one-secret ,, two-secret", &problems);
    keys_add(&keys, "env", "token", "one-secret", &problems); /* the same again */
    assert_int_equal(problems.count, 0);
    assert_int_equal(keys.count, 2);
    assert_int_equal(keys_find(&keys, "one-secret", 10), 0);
    assert_int_equal(keys_find(&keys, "two-secret", 10), 1);
    assert_int_equal(keys_find(&keys, "two-secre", 9), -1);
    assert_int_equal(keys_find(&keys, "", 0), -1);
    assert_string_equal(keys.items[1].name, "api-key-2");
    keys_done(&keys);
}

static void a_file_gives_names_and_quotas(void **state)
{
    static const char text[] = "# staff\n[alice]\nkey = alices-secret\nconcurrency = 4\n"
                               "rate_per_s = 10\n[bob]\nkey = bobs-secret\n"
                               "cpu_s_per_hour = 600\nrole = operator\n";
    struct keys keys = {0}, again = {0};
    struct strv problems = {0};
    struct buf out;

    keys_add_text(&keys, "keys", text, sizeof(text) - 1, &problems);
    assert_int_equal(problems.count, 0);
    assert_int_equal(keys.count, 2);
    assert_int_equal(keys.items[0].concurrency, 4);
    assert_int_equal(keys.items[1].cpu_s_per_hour, 600);
    buf_init(&out, 65536);
    assert_int_equal(keys_write(&keys, &out), 0);
    assert_null(strstr(out.data, "secret"));
    keys_add_text(&again, "monitor", out.data, out.len, &problems);
    assert_int_equal(problems.count, 0);
    assert_int_equal(keys_find(&again, "bobs-secret", 11), 1);
    assert_int_equal(again.items[0].rate_per_s, 10);
    assert_int_equal(again.items[0].role, KEY_USER);
    assert_int_equal(again.items[1].role, KEY_OPERATOR);
    buf_done(&out);
    keys_done(&keys);
    keys_done(&again);
}

static void a_nul_byte_is_refused(void **state)
{
    static const char text[] = "[a]\nkey = alices\0secret\n";
    struct keys keys = {0};
    struct strv problems = {0};

    keys_add_text(&keys, "keys", text, sizeof(text) - 1, &problems);
    assert_true(problems.count > 0);
    assert_int_equal(keys.count, 0);
    /* The bytes after a NUL count. */
    keys_add(&keys, "env", "token", "alices", &problems);
    assert_int_equal(keys_find(&keys, "alices\0secret", 13), -1);
    assert_int_equal(keys_find(&keys, "alices", 6), 0); /* the control */
    strv_done(&problems);
    keys_done(&keys);
}

static void an_unknown_role_is_refused(void **state)
{
    static const char text[] = "[a]\nkey = secret\nrole = root\n";
    struct keys keys = {0};
    struct strv problems = {0};

    keys_add_text(&keys, "keys", text, sizeof(text) - 1, &problems);
    assert_int_equal(problems.count, 1);
    assert_non_null(strstr(problems.items[0], "`user` or `operator`"));
    strv_done(&problems);
    keys_done(&keys);
}

static void every_problem_is_named(void **state)
{
    static const char text[] = "[a]\nkey = has space\n[b]\nconcurrency = many\n[c d]\nkey = x\n"
                               "[e]\nsha256 = 12\n[f]\nkey = fine\nhat = red\nnonsense\n";
    struct keys keys = {0};
    struct strv problems = {0};

    keys_add_text(&keys, "keys", text, sizeof(text) - 1, &problems);
    assert_true(problems.count >= 6);
    strv_done(&problems);
    keys_done(&keys);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_are_found_by_their_secret_only),
        cmocka_unit_test(a_file_gives_names_and_quotas),
        cmocka_unit_test(a_nul_byte_is_refused),
        cmocka_unit_test(an_unknown_role_is_refused),
        cmocka_unit_test(every_problem_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
