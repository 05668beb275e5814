/* SPDX-License-Identifier: Apache-2.0 */

/* json_read() against jansson, which decides: whatever the one reads the other reads too, and
 * as the same value. That it reads what requests look like is checked by themselves: a reader
 * that refuses everything would agree as well. */

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

/* Exactly as long as it says, so that the address sanitizer would see one byte more. Returns
 * whether it was read. */
static bool compare(const char *text, size_t len)
{
    cleanup_free char *copy = malloc(len ? len : 1);
    memcpy(copy, text, len);
    json_t *ours = json_read(copy, len);
    json_t *theirs = by_jansson(copy, len);
    if (ours && (!theirs || !json_equal(ours, theirs)))
        fail_msg("read as another value: %.*s", (int)len, text);
    bool was_read = ours != NULL;
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
    "1.5e3",
    "9223372036854775807",
    "[1,2.5,-3e-2]",
    "{\"a\":1,\"b\":[true,null],\"c\":{\"d\":\"e\"}}",
    "{\"language\":\"python\",\"code\":\"print('hello')\\n\\tx = \\\"y\\\"\\\\\\/\\b\\f\\r\"}",
    "\"eight by eight by eight bytes, more than one word\"",
    "\"1234567\\n1234567890123456\\t\"",
    "\"\\u0041\\u00e4\\ud83d\\ude00\"",
    "\"\\u0000\"",
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

static void what_is_wrong_is_left_to_jansson(void **state)
{
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        if (compare(bad[i], strlen(bad[i])))
            fail_msg("read: %s", bad[i]);
    }
    assert_false(compare("[]\0", 3));
    assert_false(compare("\"a\0b\"", 5));
}

static void depth_and_number_are_bounded(void **state)
{
    static char text[2 * JSON_READ_VALUES + 16];
    for (size_t depth = JSON_READ_DEPTH; depth <= JSON_READ_DEPTH + 1; depth++) {
        memset(text, '[', depth);
        memset(text + depth, ']', depth);
        assert_int_equal(compare(text, 2 * depth), depth == JSON_READ_DEPTH);
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
        assert_int_equal(compare(text, len), commas == JSON_READ_VALUES);
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
        cmocka_unit_test(what_is_wrong_is_left_to_jansson),
        cmocka_unit_test(depth_and_number_are_bounded),
        cmocka_unit_test(every_byte_at_every_place_of_a_string),
        cmocka_unit_test(what_is_nearly_right),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
