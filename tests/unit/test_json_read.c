/* SPDX-License-Identifier: Apache-2.0 */

/* json_read() against jansson as an oracle: each reads what the other reads, as the same value.
 * Only the bounds of depth and number are json_read()'s own. */

#include "test.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "json/read.h"

static json_t *by_jansson(const char *text, size_t len)
{
    return json_loadb(
        text, len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_ANY, NULL);
}

/* Exactly as long as it says, so that the address sanitizer would see one byte more. */
static json_t *read_copy(const char *text, size_t len, struct json_problem *ret)
{
    cleanup_free char *copy = malloc(len ? len : 1);
    memcpy(copy, text, len);
    return json_read(copy, len, ret);
}

/* Returns whether it was read. */
static bool compare(const char *text, size_t len)
{
    struct json_problem problem = {0};
    json_t *ours = read_copy(text, len, &problem);
    json_t *theirs = by_jansson(text, len);
    if (ours ? !json_equal(ours, theirs) : theirs != NULL)
        fail_msg("%s: %.*s", ours ? "read as another value" : "not read", (int)len, text);
    bool was_read = ours != NULL;
    assert_true(was_read ? !problem.text : problem.text && problem.at <= len);
    json_decref(ours);
    json_decref(theirs);
    return was_read;
}

static const char *const good[] = {
    "{}",
    "[]",
    " \t\r\n[ ] ",
    "\"\"",
    "\"plain\"",
    "true",
    "false",
    "null",
    "0",
    "-1",
    "-0",
    "1.5e3",
    "1E+2",
    "1e-999",
    "-9223372036854775808",
    "9223372036854775807",
    "[1,2.5,-3e-2]",
    "{\"a\":1,\"b\":[true,null],\"c\":{\"d\":\"e\"}}",
    "{\"language\":\"python\",\"code\":\"print('hello')\\n\\tx = \\\"y\\\"\\\\\\/\\b\\f\\r\"}",
    "\"eight by eight by eight bytes, more than one word\"",
    "\"1234567\\n1234567890123456\\t\"",
    "\"\\u0041\\u00e4\\ud83d\\ude00\"",
    "\"\\u0000\"",
    "\"\\uFFFF\\udbff\\uDFFFx\\u07ff\\u0800\"",
    "{\"a\\u00e4\\n\":1,\"\xc3\xa4\":2,\"\":3}",
    "\"\xc3\xa4\xf0\x9f\x98\x80\"",
    "\"\x7f\"",
    "[\"a\xc3\xa4\",\"b\\u00e4\",\"c\\n\"]",
};

static const char *const bad[] = {
    "",
    " ",
    "{",
    "}",
    "[",
    "]",
    "[1",
    "[1,",
    "[1,]",
    "[,1]",
    "[1 2]",
    "{\"a\"}",
    "{\"a\":}",
    "{\"a\":1,}",
    "{\"a\" 1}",
    "{a:1}",
    "{\"a\":1,\"a\":2}",
    "{\"\\u0000\":1}",
    "\"",
    "\"a",
    "\"\\",
    "\"\\\"",
    "\"\\x\"",
    "\"\\u12\"",
    "\"\\ud800\"",
    "\"\\udc00\"",
    "\"\\ud800\\ud800\"",
    "\"\\ud800x\"",
    "\"\\u00g0\"",
    "{\"\xc3\xa4\":1,\"\\u00e4\":2}",
    "\"\xe0\x80\x80\"",
    "\"\xf4\x90\x80\x80\"",
    "-9223372036854775809",
    "00",
    "1.e1",
    "1e+",
    "\"\n\"",
    "\"12345678\x01\"",
    "\"\xff\"",
    "\"\xc3\"",
    "\"\xed\xa0\x80\"",
    "tru",
    "trueish",
    "nul",
    "01",
    "+1",
    "1.",
    ".5",
    "1e",
    "-",
    "1e999",
    "99999999999999999999",
    "[1]x",
    "[1][2]",
    "\xef\xbb\xbf[]",
    "'a'",
    "NaN",
};

static void what_is_right_is_read(void **state)
{
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        if (!compare(good[i], strlen(good[i])))
            fail_msg("not read: %s", good[i]);
    }
}

static void what_is_wrong_is_refused(void **state)
{
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        if (compare(bad[i], strlen(bad[i])))
            fail_msg("read: %s", bad[i]);
    }
    assert_false(compare("[]\0", 3));
    assert_false(compare("\"a\0b\"", 5));
}

static void what_is_wrong_is_named(void **state)
{
    static const struct {
        const char *text, *problem;
        size_t at;
    } cases[] = {
        {"", "ends too early", 0},
        {"{\"a\": }", "invalid token", 6},
        {"{\"a\":1, b}", "a name in quotes", 8},
        {"{\"a\" 1}", "colon", 5},
        {"{\"a\":1,\"a\":2}", "duplicate", 7},
        {"{\"\\u0000\":1}", "NUL", 1},
        {"[1 2]", "comma", 3},
        {"[1] 2", "more than one", 4},
        {"[\"ab", "without an end", 1},
        {"[\"a\nb\"]", "control character", 3},
        {"[\"a\xff\"]", "decode byte", 3},
        {"[\"a\\x\"]", "escape", 3},
        {"[\"\\ud800\\u0041\"]", "escape", 2},
        {"[1e999]", "does not fit into a double", 1},
        {"[9223372036854775808]", "does not fit into 64 bits", 1},
        {"[-9223372036854775809", "does not fit into 64 bits", 1},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct json_problem problem = {0};
        assert_null(read_copy(cases[i].text, strlen(cases[i].text), &problem));
        if (!strstr(problem.text, cases[i].problem) || problem.at != cases[i].at)
            fail_msg("%s: %s (byte %zu)", cases[i].text, problem.text, problem.at);
        /* A number out of range is not malformed JSON, and only such a number is not. */
        assert_int_equal(problem.is_range, strstr(cases[i].problem, "does not fit") != NULL);
    }
}

static bool is_read(const char *text, size_t len)
{
    struct json_problem problem = {0};
    json_t *value = read_copy(text, len, &problem);
    json_decref(value);
    return value;
}

static void depth_and_number_are_bounded(void **state)
{
    static char text[2 * JSON_READ_VALUES + 16];
    for (size_t depth = JSON_READ_DEPTH; depth <= JSON_READ_DEPTH + 1; depth++) {
        memset(text, '[', depth);
        memset(text + depth, ']', depth);
        assert_int_equal(is_read(text, 2 * depth), depth == JSON_READ_DEPTH);
    }
    for (size_t commas = JSON_READ_VALUES; commas <= JSON_READ_VALUES + 1; commas++) {
        size_t len = 0;
        text[len++] = '[';
        for (size_t i = 0; i < commas; i++) {
            text[len++] = '1';
            text[len++] = ',';
        }
        text[len++] = '1';
        text[len++] = ']';
        assert_int_equal(is_read(text, len), commas == JSON_READ_VALUES);
    }
}

static void every_byte_at_every_place_of_a_string(void **state)
{
    for (unsigned c = 0; c < 256; c++) {
        for (size_t at = 0; at < 20; at++) {
            char text[] = "\"abcdefghijklmnopqrst\"";
            text[1 + at] = (char)c;
            bool was_read = compare(text, sizeof(text) - 1);
            if (c != '\\') /* some of those that follow make an escape of it */
                assert_int_equal(was_read, c >= 0x20 && c < 0x80 && c != '"');
        }
    }
}

/* One to three bytes of something good are changed, put in or taken out. */
static void what_is_nearly_right(void **state)
{
    static const char bytes[] = "\"\"\\\\{}[],,::0123eE.-tfnu \n\x01\x7f\x80\xc3\xa4\xff";
    uint64_t seed = 7;
    unsigned read = 0;
    for (unsigned round = 0; round < 300000; round++) {
        char text[256];
        const char *from = good[test_random(&seed) % (sizeof(good) / sizeof(good[0]))];
        size_t len = strlen(from);
        memcpy(text, from, len);
        for (unsigned i = test_random(&seed) % 3 + 1; i > 0 && len; i--) {
            size_t at = test_random(&seed) % len;
            char c = bytes[test_random(&seed) % (sizeof(bytes) - 1)];
            switch (test_random(&seed) % 3) {
            case 0:
                text[at] = c;
                break;
            case 1:
                memmove(text + at + 1, text + at, len - at);
                text[at] = c;
                len++;
                break;
            default:
                len--;
                memmove(text + at, text + at + 1, len - at);
                break;
            }
        }
        read += compare(text, len);
    }
    assert_true(read > 10000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_right_is_read),
        cmocka_unit_test(what_is_wrong_is_refused),
        cmocka_unit_test(what_is_wrong_is_named),
        cmocka_unit_test(depth_and_number_are_bounded),
        cmocka_unit_test(every_byte_at_every_place_of_a_string),
        cmocka_unit_test(what_is_nearly_right),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
