/* SPDX-License-Identifier: Apache-2.0 */

/* Facts about the hint for a module that is missing. */

#include "test.h"

#include <string.h>

#include "run/hint.h"
#include "runtime_fixture.h"

static struct runtime_registry shipped;

static const char *hint_of(const struct missing_module *missing, const char *text)
{
    static char message[256];
    message[0] = '\0';
    hint_missing_module(missing, text, strlen(text), message, sizeof(message));
    return message;
}

static const char *hint(const char *text)
{
    return hint_of(&runtime_find(&shipped, "python")->run.missing, text);
}

static void modules_of_the_data_image_have_a_hint(void **state)
{
    assert_non_null(
        strstr(hint("ModuleNotFoundError: No module named 'pandas'\n"), "has pandas"));
    assert_non_null(strstr(hint("No module named 'sklearn'"), "has sklearn"));
    /* the last line counts */
    assert_non_null(
        strstr(hint("No module named 'numpy'\n...\nNo module named 'PIL'\n"), "has PIL"));
}

static void everything_else_has_none(void **state)
{
    assert_string_equal(hint(""), "");
    assert_string_equal(hint("No module named 'mine'"), "");
    assert_string_equal(hint("No module named 'pandas.nothing'"), ""); /* pandas is there */
    assert_string_equal(hint("No module named 'pandas"), "");
    assert_string_equal(hint("No module named '"), "");
    /* a language without such words */
    assert_string_equal(
        hint_of(&runtime_find(&shipped, "ruby")->run.missing, "No module named 'pandas'"), "");
}

static void only_the_end_of_the_text_counts(void **state)
{
    char text[4096];
    memset(text, 'x', sizeof(text));
    memcpy(text, "No module named 'pandas'", 24);
    text[sizeof(text) - 1] = '\0';
    assert_string_equal(hint(text), "");
}

static int load(void **state)
{
    struct err err = {0};
    return runtime_load(&shipped, fixture_dirs(), NULL, &err);
}

static int forget(void **state)
{
    runtime_registry_done(&shipped);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(modules_of_the_data_image_have_a_hint),
        cmocka_unit_test(everything_else_has_none),
        cmocka_unit_test(only_the_end_of_the_text_counts)};
    return cmocka_run_group_tests(tests, load, forget);
}
