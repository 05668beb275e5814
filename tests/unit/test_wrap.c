/* SPDX-License-Identifier: Apache-2.0 */

/* Facts about the lines of help texts. */

#include "test.h"

#include <errno.h>

#include "base/wrap.h"

static void expect(const char *text, int column, int indent, int width, const char *lines)
{
    cleanup_buf struct buf to;
    buf_init(&to, 1000);
    assert_int_equal(wrap_text(&to, text, column, indent, width), 0);
    assert_string_equal(to.data, lines);
}

static void lines_break_between_words(void **state)
{
    expect("one two three", 0, 0, 7, "one two\nthree\n");
    expect("one two three", 0, 0, 6, "one\ntwo\nthree\n");
    expect("one two", 0, 0, 79, "one two\n");
    expect("", 0, 0, 79, "\n");
}

static void the_first_line_begins_at_its_column(void **state)
{
    expect("one two", 4, 2, 11, "one two\n");
    expect("one two", 5, 2, 11, "one\n  two\n");
}

static void a_long_word_is_not_cut(void **state)
{
    expect("a longest b", 0, 0, 4, "a\nlongest\nb\n");
}

static void newlines_of_the_text_stay(void **state)
{
    expect("one\n\ntwo", 0, 2, 79, "one\n\n  two\n");
    expect("one\n", 0, 2, 79, "one\n\n");
}

static void a_row_continues_below_its_text(void **state)
{
    expect("  ls  list all", 0, 0, 10, "  ls  list\n      all\n");
    expect("  ls  list all\nmore of it", 0, 0, 10, "  ls  list\n      all\nmore of it\n");
}

static void a_full_buffer_is_an_error(void **state)
{
    cleanup_buf struct buf to;
    buf_init(&to, 4);
    assert_int_equal(wrap_text(&to, "one two", 0, 0, 79), -EMSGSIZE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_break_between_words),
        cmocka_unit_test(the_first_line_begins_at_its_column),
        cmocka_unit_test(a_long_word_is_not_cut),
        cmocka_unit_test(newlines_of_the_text_stay),
        cmocka_unit_test(a_row_continues_below_its_text),
        cmocka_unit_test(a_full_buffer_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
