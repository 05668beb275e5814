/* SPDX-License-Identifier: Apache-2.0 */

/* The tables of commands: each row matches its example and not the other one. */

#include "approval/shell_internal.h"
#include "base/str.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "test.h"

static const char *category(const char *line)
{
    struct shell_words words = {0};
    char *copy = strdup(line);
    char *rest = copy;
    for (char *word; (word = strsep(&rest, " "));) {
        struct shell_word one;
        shell_word_set(&one, word);
        shell_words_add(&words, &one);
        free(one.shape);
        free(one.source);
    }
    const char *found = shell_danger(words.items, words.count);
    shell_words_done(&words);
    free(copy);
    return found;
}

static void each_row_is_for_its_example(void **state)
{
    for (size_t i = 0; i < shell_danger_count; i++) {
        const struct shell_danger_row *row = &shell_dangers[i];
        const char *found = category(row->example);
        if (!str_eq(found, row->category))
            fail_msg(
                "`%s` is %s, not %s", row->example, found ? found : "nothing", row->category);
        found = category(row->other);
        if (str_eq(found, row->category))
            fail_msg("`%s` is %s, too", row->other, row->category);
    }
    assert_true(shell_danger_count > 50);
}

static void variables_that_change_programs_are_known(void **state)
{
    assert_true(shell_variable_is_special("PATH", 4, NULL));
    assert_true(shell_variable_is_special("LD_PRELOAD=x", 10, NULL));
    assert_true(shell_variable_is_special("GIT_SSH_COMMAND", 15, NULL));
    assert_false(shell_variable_is_special("PATHS", 5, NULL));
    assert_false(shell_variable_is_special("NAME", 4, NULL));
    assert_false(shell_variable_is_special("", 0, NULL));
    assert_true(shell_word_sets_special("LC_ALL=zh_CN.GBK"));
    assert_true(shell_word_sets_special("CGO_LDFLAGS=x"));
    assert_false(shell_word_sets_special("LANG=de_DE.UTF-8"));
    assert_false(shell_word_sets_special("CGO_ENABLED=0"));
}

static int no_tree(void *context, const char *text, size_t len, json_t **ret)
{
    return -ENOENT;
}

static void a_text_without_a_tree_is_not_understood(void **state)
{
    struct shell_forms forms;
    assert_int_equal(shell_read("ls", 2, "", no_tree, NULL, &forms), -EBADMSG);
    assert_int_equal(forms.count, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_row_is_for_its_example),
        cmocka_unit_test(variables_that_change_programs_are_known),
        cmocka_unit_test(a_text_without_a_tree_is_not_understood)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
