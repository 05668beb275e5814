/* SPDX-License-Identifier: Apache-2.0 */

/* Facts about the data of a run. */

#include "test.h"

#include <string.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "run/run.h"

static void lists_grow_and_stay_terminated(void **state)
{
    CLEANUP(strv_done) struct strv v = {0};
    CLEANUP(strv_done) struct strv twice = {0};

    for (size_t i = 0; i < 100; i++) {
        strv_add_owned(&v, xasprintf("%zu", i));
        assert_int_equal(v.count, i + 1);
        assert_null(v.items[v.count]);
    }
    strv_add_all(&twice, &v);
    strv_add_all(&twice, &v);
    assert_int_equal(twice.count, 200);
    assert_string_equal(twice.items[199], "99");
    assert_true(strv_has(&v, "42"));
    assert_false(strv_has(&v, "100"));
}

static void files_are_found_by_name(void **state)
{
    CLEANUP(run_files_done) struct run_files files = {0};

    assert_null(run_files_find(&files, "a"));
    for (size_t i = 0; i < 40; i++) {
        cleanup_free char *name = xasprintf("dir/f%zu", i);

        run_files_add(&files, name, xstrdup("text"), 4, i == 7);
    }
    assert_int_equal(files.count, 40);
    assert_true(run_files_find(&files, "dir/f7")->executable);
    assert_false(run_files_find(&files, "dir/f8")->executable);
    assert_null(run_files_find(&files, "dir/f40"));
}

/* Checks a list of names that ends with NULL; the message must contain a word, or be none. */
static void check_names(const char *const *names, const char *word)
{
    struct run_files files = {0};
    struct err err = {0};

    for (size_t i = 0; names[i] != NULL; i++)
        run_files_add(&files, names[i], xstrdup(""), 0, false);
    int r = run_files_check(&files, &err);
    if (word == NULL) {
        assert_int_equal(r, 0);
    } else {
        assert_int_equal(r, -EINVAL);
        assert_int_equal(err.code, ERR_INVALID);
        assert_string_equal(err.field, "files");
        assert_non_null(strstr(err.message, word));
    }
    run_files_done(&files);
}

static void files_that_cannot_be_together_are_refused(void **state)
{
    (void)state;
    check_names((const char *const[]){NULL}, NULL);
    check_names((const char *const[]){"a", "b", "a-b", "ab/c", "a.b/c", "d/a", NULL}, NULL);
    check_names((const char *const[]){"a", "a/b", NULL}, "below");
    check_names((const char *const[]){"a/b", "a", NULL}, "below");
    /* Names that sort between a file and what lies below it. */
    check_names((const char *const[]){"a", "a-x", "a.x", "a!", "a0", "a/b", NULL}, "below");
    check_names((const char *const[]){"x", "d/e", "d", "y/z", NULL}, "`d`");
    check_names((const char *const[]){"d/e/f/g", "q", "d/e", NULL}, "`d/e`");
    check_names((const char *const[]){"x/y", "z", "x/y", NULL}, "two files");
    check_names((const char *const[]){"../x", NULL}, "../x");
    check_names((const char *const[]){"ok", "/etc/cron.d/x", NULL}, "/etc/cron.d/x");
    check_names((const char *const[]){"", NULL}, "file name");
    check_names((const char *const[]){"a//b", NULL}, "a//b");
    check_names((const char *const[]){"..\\x", NULL}, "file name");
    check_names((const char *const[]){"a\nb", NULL}, "file name");
}

static void every_status_and_limit_has_its_word(void **state)
{
    for (unsigned i = 0; i < RUN_STATUS_COUNT; i++)
        assert_true(strlen(run_status_name(i)) > 1);
    assert_string_equal(run_status_name(RUN_TIME_LIMIT), "time_limit");
    assert_string_equal(run_status_name(RUN_STATUS_COUNT), "internal_error");
    assert_string_equal(run_hit_name(0), "wall");
    assert_string_equal(run_hit_name(6), "disk");
    assert_null(run_hit_name(HIT_COUNT));
}

static void names_of_variables_are_checked(void **state)
{
    char longest[130];

    memset(longest, 'A', sizeof(longest));
    longest[128] = '\0';
    assert_null(run_env_problem("PATH", "/x", 2));
    assert_null(run_env_problem("_a1", "", 0));
    assert_null(run_env_problem("LD_PRELOAD", "x=y\n", 4));
    assert_null(run_env_problem(longest, "", 0));
    longest[128] = 'A';
    longest[129] = '\0';
    assert_non_null(run_env_problem(longest, "", 0));
    assert_non_null(run_env_problem("", "", 0));
    assert_non_null(run_env_problem("A=B", "", 0));
    assert_non_null(run_env_problem("1A", "", 0));
    assert_non_null(run_env_problem("A-B", "", 0));
    assert_non_null(run_env_problem("\xc3\xa9", "", 0));
    assert_non_null(run_env_problem("HERMES_X", "", 0));
    assert_non_null(run_env_problem("A", "a\0b", 3));
}

static void spec_and_result_are_emptied(void **state)
{
    struct run_spec spec;
    struct run_result result;

    run_spec_init(&spec);
    assert_true(spec.stdin_fd < 0);
    spec.entry = xstrdup("x");
    strv_add(&spec.args, "a");
    run_files_add(&spec.files, "n", xstrdup(""), 0, false);
    run_spec_done(&spec);
    assert_null(spec.entry);
    assert_int_equal(spec.files.count, 0);
    run_spec_done(&spec);

    run_result_init(&result, 4);
    assert_int_equal(result.run.status, RUN_QUEUED);
    assert_int_equal(buf_append_some(&result.run.out, "123456", 6), 4);
    run_result_done(&result);
}

static void every_end_has_an_exit_status(void **state)
{
    struct run_result r = {
        .run = {.status = RUN_RUNTIME_ERROR, .exited = true, .exit_code = 3}};

    assert_int_equal(run_exit_status(&r, 0), 3);
    r.run = (struct stage_result){.status = RUN_SIGNALED, .signal = 11};
    assert_int_equal(run_exit_status(&r, 0), 139);
    static const struct {
        enum run_status status;
        int want;
    } ends[] = {{RUN_OK, 0}, {RUN_TIME_LIMIT, 124}, {RUN_MEMORY_LIMIT, 137},
        {RUN_OUTPUT_LIMIT, 153}, {RUN_COMPILE_ERROR, 1}, {RUN_CANCELLED, 130},
        {RUN_INTERNAL_ERROR, 125}};
    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
        r.run = (struct stage_result){.status = ends[i].status};
        assert_int_equal(run_exit_status(&r, 0), ends[i].want);
    }
    r.run.status = RUN_CANCELLED;
    assert_int_equal(run_exit_status(&r, 15), 143);
    r.run.status = RUN_COMPILE_ERROR;
    r.compile = (struct stage_result){.exited = true, .exit_code = 4};
    assert_int_equal(run_exit_status(&r, 0), 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_grow_and_stay_terminated),
        cmocka_unit_test(files_are_found_by_name),
        cmocka_unit_test(files_that_cannot_be_together_are_refused),
        cmocka_unit_test(every_status_and_limit_has_its_word),
        cmocka_unit_test(names_of_variables_are_checked),
        cmocka_unit_test(spec_and_result_are_emptied),
        cmocka_unit_test(every_end_has_an_exit_status),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
