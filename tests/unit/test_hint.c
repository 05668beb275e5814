/* SPDX-License-Identifier: Apache-2.0 */

/* Facts about the hint for a Python module that is missing. */

#include "test.h"

#include <string.h>

#include "run/hint.h"

static const char *hint(const char *text)
{
    static char message[256];
    message[0] = '\0';
    hint_missing_module(text, strlen(text), message, sizeof(message));
    return message;
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
}

static void only_the_end_of_the_text_counts(void **state)
{
    char text[4096];
    memset(text, 'x', sizeof(text));
    memcpy(text, "No module named 'pandas'", 24);
    text[sizeof(text) - 1] = '\0';
    assert_string_equal(hint(text), "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(modules_of_the_data_image_have_a_hint),
        cmocka_unit_test(everything_else_has_none),
        cmocka_unit_test(only_the_end_of_the_text_counts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
