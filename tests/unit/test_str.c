/* SPDX-License-Identifier: Apache-2.0 */

/* Facts about strict parsing, file names and glob patterns. */

#include "test.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

enum { UNTOUCHED = 4242 };

static void whole_numbers_are_read_whole_or_not_at_all(void **state)
{
    static const struct {
        const char *text;
        int ret;
        uint64_t value;
    } rows[] = {
        {"0", 0, 0},
        {"1", 0, 1},
        {"007", 0, 7},
        {"18446744073709551615", 0, UINT64_MAX},
        {"00000000000000000000000000000001", 0, 1},
        {"18446744073709551616", -ERANGE, 0},
        {"99999999999999999999999999", -ERANGE, 0},
        {"99999999999999999999999999x", -EINVAL, 0},
        {"", -EINVAL, 0},
        {" 1", -EINVAL, 0},
        {"1 ", -EINVAL, 0},
        {"1\n", -EINVAL, 0},
        {"+1", -EINVAL, 0},
        {"-1", -EINVAL, 0},
        {"0x10", -EINVAL, 0},
        {"1e3", -EINVAL, 0},
        {"1.0", -EINVAL, 0},
        {"1_000", -EINVAL, 0},
        {"\xd9\xa1", -EINVAL, 0}, /* an Arabic digit */
        {NULL, -EINVAL, 0},
    };

    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        uint64_t value = UNTOUCHED;
        assert_int_equal(str_parse_u64(rows[i].text, &value), rows[i].ret);
        assert_true(value == (rows[i].ret == 0 ? rows[i].value : UNTOUCHED));
    }
}

static void narrow_and_signed_numbers_have_their_ranges(void **state)
{
    uint32_t u = UNTOUCHED;
    int64_t i = UNTOUCHED;

    assert_int_equal(str_parse_u32("4294967296", &u), -ERANGE);
    assert_int_equal(str_parse_u32("-1", &u), -EINVAL);
    assert_int_equal(str_parse_u32(NULL, &u), -EINVAL);

    bool is_on = false;
    assert_int_equal(str_parse_bool("Yes", &is_on), 0);
    assert_true(is_on);
    assert_int_equal(str_parse_bool("0", &is_on), 0);
    assert_false(is_on);
    assert_int_equal(str_parse_bool("2", &is_on), -EINVAL);
    assert_int_equal(str_parse_bool("", &is_on), -EINVAL);
    assert_int_equal(str_parse_bool(NULL, &is_on), -EINVAL);
    assert_int_equal(u, UNTOUCHED);
    assert_int_equal(str_parse_u32("4294967295", &u), 0);
    assert_int_equal(u, UINT32_MAX);

    assert_int_equal(str_parse_i64("9223372036854775808", &i), -ERANGE);
    assert_int_equal(str_parse_i64("-9223372036854775809", &i), -ERANGE);
    assert_int_equal(str_parse_i64("--1", &i), -EINVAL);
    assert_int_equal(str_parse_i64("-", &i), -EINVAL);
    assert_int_equal(str_parse_i64("+1", &i), -EINVAL);
    assert_int_equal(str_parse_i64("- 1", &i), -EINVAL);
    assert_int_equal(i, UNTOUCHED);
    assert_int_equal(str_parse_i64("-9223372036854775808", &i), 0);
    assert_true(i == INT64_MIN);
    assert_int_equal(str_parse_i64("9223372036854775807", &i), 0);
    assert_true(i == INT64_MAX);
    assert_int_equal(str_parse_i64("-0", &i), 0);
    assert_true(i == 0);
}

struct quantity {
    const char *text;
    int ret;
    uint64_t value;
};

static void check_quantities(
    const struct quantity *rows, size_t count, int parse(const char *s, uint64_t *ret_value))
{
    for (size_t i = 0; i < count; i++) {
        uint64_t value = UNTOUCHED;
        int r = parse(rows[i].text, &value);
        uint64_t wanted = rows[i].ret == 0 ? rows[i].value : UNTOUCHED;
        if (r != rows[i].ret || value != wanted)
            fail_msg("\"%s\": %d, %llu", rows[i].text, r, (unsigned long long)value);
    }
}

static void sizes_are_powers_of_1024(void **state)
{
    static const struct quantity rows[] = {
        {"0", 0, 0},
        {"1048576", 0, 1048576},
        {"7b", 0, 7},
        {"64k", 0, 65536},
        {"64K", 0, 65536},
        {"64kb", 0, 65536},
        {"64KiB", 0, 65536},
        {"256m", 0, 256u << 20},
        {"64MiB", 0, 64u << 20},
        {"1g", 0, 1u << 30},
        {"1.5g", 0, 3u << 29},
        {"2t", 0, UINT64_C(2) << 40},
        {"0.5k", 0, 512},
        {"0.0001k", 0, 1},
        {"1.0000000000000000000000000k", 0, 1024},
        {"1.0000000000000000000000001k", 0, 1025},
        {"0.999999999999999999999999t", 0, UINT64_C(1) << 40},
        {"18446744073709551615", 0, UINT64_MAX},
        {"17179869183g", 0, UINT64_C(17179869183) << 30},
        {"17179869184g", -ERANGE, 0},
        {"18446744073709551616", -ERANGE, 0},
        {"18446744073709551616q", -EINVAL, 0},
        {"1.5", -EINVAL, 0},
        {"1.5b", -EINVAL, 0},
        {"1.g", -EINVAL, 0},
        {".5g", -EINVAL, 0},
        {"1..5g", -EINVAL, 0},
        {"1,5g", -EINVAL, 0},
        {"-1g", -EINVAL, 0},
        {"+1g", -EINVAL, 0},
        {" 1g", -EINVAL, 0},
        {"1 g", -EINVAL, 0},
        {"1g ", -EINVAL, 0},
        {"g", -EINVAL, 0},
        {"", -EINVAL, 0},
        {"1gg", -EINVAL, 0},
        {"1ib", -EINVAL, 0},
        {"1e3k", -EINVAL, 0},
        {"inf", -EINVAL, 0},
        {"nan", -EINVAL, 0},
        {"1\xe2\x84\xaa", -EINVAL, 0}, /* the Kelvin sign folds to k in some locales */
        {NULL, -EINVAL, 0},
    };
    check_quantities(rows, COUNT_OF(rows), str_parse_size);
}

static void durations_are_milliseconds(void **state)
{
    static const struct quantity rows[] = {
        {"2", 0, 2000},
        {"0.25", 0, 250},
        {"2s", 0, 2000},
        {"1.5s", 0, 1500},
        {"500ms", 0, 500},
        {"1m", 0, 60000},
        {"1h", 0, 3600000},
        {"0", 0, 0},
        {"0.0s", 0, 0},
        {"0.2ms", 0, 1},
        {"0.0000000000000000000000001h", 0, 1},
        {"1.0005s", 0, 1001},
        {"18446744073709551615ms", 0, UINT64_MAX},
        {"18446744073709551615s", -ERANGE, 0},
        {"18446744073709551616ms", -ERANGE, 0},
        {"2S", -EINVAL, 0},
        {"1d", -EINVAL, 0},
        {"1m30s", -EINVAL, 0},
        {"2 s", -EINVAL, 0},
        {"-1s", -EINVAL, 0},
        {"s", -EINVAL, 0},
        {"", -EINVAL, 0},
        {"1.s", -EINVAL, 0},
        {"0x1s", -EINVAL, 0},
        {NULL, -EINVAL, 0},
    };
    check_quantities(rows, COUNT_OF(rows), str_parse_duration_ms);
}

static void comparisons_accept_null(void **state)
{
    assert_true(str_eq(NULL, NULL));
    assert_false(str_eq(NULL, ""));
    assert_false(str_eq("a", "b"));
    assert_true(str_eq("a", "a"));
    assert_true(str_has_prefix("abc", "ab"));
    assert_true(str_has_prefix("abc", ""));
    assert_false(str_has_prefix("ab", "abc"));
    assert_false(str_has_prefix(NULL, ""));
    assert_true(str_list_has("ab, c", "ab") && str_list_has(", ab,c ", "c"));
    assert_false(str_list_has("ab, c", "a") || str_list_has("ab", "abc"));
    assert_false(
        str_list_has("ab,, c", "") || str_list_has("", "") || str_list_has("ab c", "ab c"));
    assert_true(str_has_suffix("abc", "bc"));
    assert_true(str_has_suffix("abc", ""));
    assert_false(str_has_suffix("bc", "abc"));
    assert_false(str_has_suffix("abc", NULL));
}

static void hex_has_two_digits_a_byte(void **state)
{
    char text[] = "........";
    str_hex("\x00\x7f\xff", 3, text);
    assert_string_equal(text, "007fff");
    assert_int_equal(text[7], '.');
    str_hex("", 0, text);
    assert_string_equal(text, "");
}

static void join_puts_the_separator_between(void **state)
{
    const char *const parts[] = {"a", "", "bc"};
    cleanup_free char *none = str_join(NULL, 0, ", ");
    cleanup_free char *one = str_join(parts, 1, ", ");
    cleanup_free char *all = str_join(parts, 3, ", ");

    assert_string_equal(none, "");
    assert_string_equal(one, "a");
    assert_string_equal(all, "a, , bc");
}

static const char *problem(const char *name)
{
    return str_name_problem(name, strlen(name));
}

static void ordinary_names_are_fine(void **state)
{
    assert_null(problem("main.py"));
    assert_null(problem("a/b/c.txt"));
    assert_null(problem(".hidden"));
    assert_null(problem("..."));
    assert_null(problem("..a/b.."));
    assert_null(problem("a b"));
    assert_null(problem("-rf"));
    assert_null(problem("\xc3\xa9t\xc3\xa9/\xf0\x9f\x98\x80"));
    assert_null(problem("*?[x]"));
}

static void hostile_names_are_told_why(void **state)
{
    assert_string_equal(problem(""), "is empty");
    assert_string_equal(str_name_problem(NULL, 0), "is empty");
    assert_string_equal(problem("/etc/passwd"), "is not relative");
    assert_string_equal(problem("/"), "is not relative");
    assert_string_equal(problem("a//b"), "has an empty component");
    assert_string_equal(problem("a/"), "has an empty component");
    assert_string_equal(problem("."), "has a \".\" component");
    assert_string_equal(problem("./a"), "has a \".\" component");
    assert_string_equal(problem(".."), "has a \"..\" component");
    assert_string_equal(problem("a/../b"), "has a \"..\" component");
    assert_string_equal(problem("a/.."), "has a \"..\" component");
    assert_string_equal(str_name_problem("a\0b", 3), "contains a NUL byte");
    assert_string_equal(str_name_problem("\0", 1), "contains a NUL byte");
    assert_string_equal(problem("a\nb"), "contains a control character");
    assert_string_equal(problem("a\x7f"), "contains a control character");
    assert_string_equal(problem("a\xc2\x9b"), "contains a control character");
    assert_string_equal(problem("a\\b"), "contains a backslash");
    assert_string_equal(problem("a\xff"), "is not valid UTF-8");
    assert_string_equal(problem("a\xc0\xaf"), "is not valid UTF-8");
    assert_string_equal(problem("\xe2\x82"), "is not valid UTF-8");
}

static void names_have_their_largest_sizes(void **state)
{
    static char name[5000];

    memset(name, 'a', 255);
    assert_null(str_name_problem(name, 255));
    name[255] = 'a';
    assert_string_equal(str_name_problem(name, 256), "has a component of more than 255 bytes");
    for (size_t i = 0; i < 63; i += 2)
        memcpy(name + i, "a/", 2);
    assert_null(str_name_problem(name, 63));
    name[64] = 'a';
    assert_string_equal(str_name_problem(name, 65), "has more than 32 levels");
    for (size_t i = 0; i < sizeof(name); i++)
        name[i] = i % 200 == 199 ? '/' : 'b';
    assert_null(str_name_problem(name, 4096));
    assert_string_equal(str_name_problem(name, 4097), "is longer than 4096 bytes");
}

static void words_are_quoted_as_a_shell_wants(void **state)
{
    static const char *const rows[][2] = {{"make", "make"}, {"-j4", "-j4"},
        {"a=b:c,d/%@+.", "a=b:c,d/%@+."}, {"HEAD~1", "HEAD~1"}, {"{}", "{}"}, {"", "''"},
        {"a b", "'a b'"}, {"x; rm y", "'x; rm y'"}, {"$x", "'$x'"}, {"*", "'*'"}, {"~", "'~'"},
        {"#a", "'#a'"}, {"{a,b}", "'{a,b}'"}, {"it's", "'it'\\''s'"}, {"''", "''\\'''\\'''"},
        {"a\nb", "'a\nb'"}};
    (void)state;
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        cleanup_free char *word = str_shell_word(rows[i][0]);
        assert_string_equal(word, rows[i][1]);
    }
}

static void globs_match_whole_paths(void **state)
{
    static const struct {
        const char *pattern;
        const char *path;
        bool is_match;
    } rows[] = {
        {"", "", true},
        {"", "a", false},
        {"a", "", false},
        {"*", "", true},
        {"a.txt", "a.txt", true},
        {"a.txt", "a.txt2", false},
        {"*.txt", "a.txt", true},
        {"*.txt", ".txt", true},
        {"*.txt", "d/a.txt", false},
        {"*/a", "d/a", true},
        {"*/a", "d/e/a", false},
        {"?", "a", true},
        {"?", "/", false},
        {"?", "", false},
        {"?", "\xc3\xa9", true},
        {"??", "\xc3\xa9", false},
        {"?", "\xff", true},
        {"\xff", "\xff", false}, /* bytes that are no text are no name */
        {"**", "", true},
        {"**", "a/b/c", true},
        {"**.py", "a/b.py", true},
        {"**/x", "x", true},
        {"**/x", "a/x", true},
        {"**/x", "a/b/x", true},
        {"**/x", "ax", false},
        {"**/x", "a/bx", false},
        {"**/*.py", "a.py", true},
        {"**/*.py", "a/b/c.py", true},
        {"**/**/x", "x", true},
        {"**/**/x", "a/x", true},
        {"a/**/b", "a/b", true},
        {"a/**/b", "a/x/y/b", true},
        {"a/**/b", "a/xb", false},
        {"a/**", "a/b/c", true},
        {"a/**", "a", false},
        {"a**/b", "a/b", true},
        {"a**/b", "axy/z/b", true},
        {"a**/b", "ab", false},
        {"***", "a/b", true},
        {"***/x", "x", true},
        {"**/a/**/b*/c", "q/a/b/bb/c", true},
        {"**a*b**c", "x/a1b/2/c", true},
        {"**a*b**c", "x/a1/b/2/c", false},
        {"[a-c]x", "bx", true},
        {"[a-c]x", "dx", false},
        {"[!a-c]x", "dx", true},
        {"[^a-c]x", "bx", false},
        {"[!a]", "/", false},
        {"[/]", "/", false},
        {"a[.-0]b", "a/b", false},
        {"[]]", "]", true},
        {"[!]]", "a", true},
        {"[!]]", "]", false},
        {"[]", "[]", true},
        {"[a", "[a", true},
        {"[", "[", true},
        {"[[]", "[", true},
        {"[a-]", "-", true},
        {"[-a]", "-", true},
        {"[z-a]", "m", false},
        {"[\\]]", "]", true},
        {"[\xc3\xa0-\xc3\xbf]", "\xc3\xa9", true},
        {"[!a]", "\xc3\xa9", true},
        {"\\*", "*", true},
        {"\\*", "a", false},
        {"\\?", "?", true},
        {"\\[a]", "[a]", true},
        {"\\", "\\", true},
        {"a\\", "a", false},
        {"A", "a", false},
        {"*a*a*", "xaxax", true},
        {"*ab*ab*cd", "ababxcabcd", true},
        {"a*b/d*c", "axb/dxxc", true},
    };

    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        if (str_glob_match(rows[i].pattern, rows[i].path) != rows[i].is_match)
            fail_msg("\"%s\" on \"%s\"", rows[i].pattern, rows[i].path);
    }
}

/* A matcher so plain that it is clearly right, and slow: what the real one is compared with. */
static bool plain_match(const char *p, const char *s, bool is_start)
{
    if (*p == '\0')
        return *s == '\0';
    if (p[0] == '*' && p[1] == '*') {
        size_t stars = strspn(p, "*");
        if (is_start && p[stars] == '/') {
            if (plain_match(p + stars + 1, s, true))
                return true;
            for (; *s; s++) {
                if (*s == '/' && plain_match(p + stars + 1, s + 1, true))
                    return true;
            }
            return false;
        }
        for (;; s++) {
            if (plain_match(p + stars, s, false))
                return true;
            if (*s == '\0')
                return false;
        }
    }
    if (*p == '*') {
        for (;; s++) {
            if (plain_match(p + 1, s, false))
                return true;
            if (*s == '\0' || *s == '/')
                return false;
        }
    }
    if (*s == '\0' || (*p == '?' ? *s == '/' : *p != *s))
        return false;
    return plain_match(p + 1, s + 1, *p == '/');
}

static void globs_agree_with_a_plain_matcher(void **state)
{
    uint64_t seed = 7;
    int matches = 0;

    for (int i = 0; i < 200000; i++) {
        char pattern[12];
        char path[12];
        size_t pattern_len = test_random(&seed) % (sizeof(pattern) - 1);
        size_t path_len = test_random(&seed) % (sizeof(path) - 1);

        for (size_t k = 0; k < pattern_len; k++)
            pattern[k] = "ab/**?*/"[test_random(&seed) % 8];
        for (size_t k = 0; k < path_len; k++)
            path[k] = "aab/"[test_random(&seed) % 4];
        pattern[pattern_len] = '\0';
        path[path_len] = '\0';
        bool wanted = plain_match(pattern, path, true);
        if (str_glob_match(pattern, path) != wanted)
            fail_msg("\"%s\" on \"%s\" is not %d", pattern, path, wanted);
        matches += wanted;
    }
    assert_true(matches > 1000);
}

/* Patterns that take backtracking matchers years; 4096 x 4096 steps take a fraction of a
 * second, some twenty times that under sanitizers. */
static void hostile_globs_end_soon(void **state)
{
    static const char *const units[] = {"*a", "**a", "*[", "[a-", "*[a]", "**/", "?*", "*\\["};
    static char pattern[STR_GLOB_MAX + 2];
    static char path[4097];

    memset(path, 'a', sizeof(path) - 1);
    for (size_t i = 0; i < COUNT_OF(units); i++) {
        size_t unit_len = strlen(units[i]);
        uint64_t start_ms = clock_ms();

        for (size_t k = 0; k < STR_GLOB_MAX - 1; k++)
            pattern[k] = units[i][k % unit_len];
        pattern[STR_GLOB_MAX - 1] = 'b';
        pattern[STR_GLOB_MAX] = '\0';
        assert_false(str_glob_match(pattern, path));
        if (clock_ms() - start_ms > 20000)
            fail_msg("\"%s\"... takes %d ms", units[i], (int)(clock_ms() - start_ms));
    }
    memset(pattern, '*', STR_GLOB_MAX + 1);
    assert_false(str_glob_match(pattern, "a"));
    assert_true(str_glob_match(pattern + 1, "a"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_numbers_are_read_whole_or_not_at_all),
        cmocka_unit_test(narrow_and_signed_numbers_have_their_ranges),
        cmocka_unit_test(sizes_are_powers_of_1024),
        cmocka_unit_test(durations_are_milliseconds),
        cmocka_unit_test(comparisons_accept_null),
        cmocka_unit_test(hex_has_two_digits_a_byte),
        cmocka_unit_test(join_puts_the_separator_between),
        cmocka_unit_test(ordinary_names_are_fine),
        cmocka_unit_test(hostile_names_are_told_why),
        cmocka_unit_test(names_have_their_largest_sizes),
        cmocka_unit_test(words_are_quoted_as_a_shell_wants),
        cmocka_unit_test(globs_match_whole_paths),
        cmocka_unit_test(globs_agree_with_a_plain_matcher),
        cmocka_unit_test(hostile_globs_end_soon),
    };
    return cmocka_run_group_tests_name("str", tests, NULL, NULL);
}
