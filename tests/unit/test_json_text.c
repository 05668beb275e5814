/* SPDX-License-Identifier: Apache-2.0 */

/* Facts about JSON that is written straight into an answer: jansson is the oracle. */

#include "base/base64.h"
#include "test.h"

#include <jansson.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "run/encode.h"
#include "json/read.h"
#include "json/text.h"

struct bytes {
    const char *data;
    size_t len;
    size_t piece; /* 0: all at once */
};

static void write_bytes(struct json_text *t, const void *context)
{
    const struct bytes *b = context;
    if (!b->piece) {
        json_text_string(t, b->data, b->len);
        return;
    }
    json_text_open(t);
    for (size_t at = 0; at < b->len; at += b->piece)
        json_text_part(t, b->data + at, b->len - at < b->piece ? b->len - at : b->piece);
    json_text_close(t);
}

static void assert_same(const struct bytes *b)
{
    size_t len;
    char *repaired = utf8_repair(b->data, b->len, &len);
    json_t *value = json_stringn_nocheck(repaired, len);
    char *expected = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
    struct answer *a = json_text_answer(NULL, -1, NULL, write_bytes, b);
    assert_int_equal(a->len, strlen(expected));
    assert_memory_equal(a->text, expected, a->len);
    answer_release(a);
    free(expected);
    free(repaired);
    json_decref(value);
}

static void strings_are_those_of_jansson(void **state)
{
    enum { SIZE = 9000 }; /* some are past what is written at once */
    static const char *const tricky[] = {"\x01", "\"", "\\", "\n\t\r\b\f", "\x7f", "\xc3\xa9",
        "\xe2\x82\xac", "\xf0\x9f\x98\x80", "\xf0\x9f", "\xff", "\xc3", "\xed\xa0\x80", "abc/",
        "plain text that is longer than eight"};
    uint64_t seed = 5;
    char *data = malloc(SIZE + 64);
    for (int round = 0; round < 400; round++) {
        size_t want = test_random(&seed) % SIZE;
        size_t len = 0;
        while (len < want) {
            const char *word =
                tricky[test_random(&seed) % (sizeof(tricky) / sizeof(tricky[0]))];
            memcpy(data + len, word, strlen(word));
            len += strlen(word);
            if (test_random(&seed) % 9 == 0)
                data[len++] = (char)test_random(&seed); /* NUL and all others */
        }
        assert_same(&(struct bytes){.data = data, .len = len});
        assert_same(
            &(struct bytes){.data = data, .len = len, .piece = 1 + test_random(&seed) % 9});
    }
    free(data);
}

static void write_base64(struct json_text *t, const void *context)
{
    const struct bytes *b = context;
    json_text_base64(t, b->data, b->len);
}

static void base64_is_that_of_results(void **state)
{
    char data[7000];
    for (size_t i = 0; i < sizeof(data); i++)
        data[i] = (char)(i * 7);
    for (size_t len = 0; len < sizeof(data); len += len < 20 ? 1 : 997) {
        const struct bytes b = {.data = data, .len = len};
        char *expected = base64_text(data, len);
        struct answer *a = json_text_answer(NULL, -1, NULL, write_base64, &b);
        assert_int_equal(a->len, strlen(expected) + 2);
        assert_memory_equal(a->text + 1, expected, strlen(expected));
        answer_release(a);
        free(expected);
    }
}

static void write_numbers(struct json_text *t, const void *context)
{
    const double *numbers = context;
    for (int i = 0; i < 6; i++)
        json_text_real(t, numbers[i]);
    json_text_int(t, INT64_MIN);
    json_text_word(t, NULL);
    json_text_bool(t, true);
}

static void numbers_are_short(void **state)
{
    const double numbers[] = {0, 3, 79.35, 0.001, -1.5, 123456.789};
    struct answer *a = json_text_answer(NULL, -1, NULL, write_numbers, numbers);
    assert_string_equal(a->text, "0.03.079.350.001-1.5123456.789-9223372036854775808nulltrue");
    answer_release(a);
}

/* A program that writes only control characters: six bytes each, and not one more. */
static void a_result_is_counted_with_its_exact_size(void **state)
{
    enum { SIZE = 100000 };
    struct ledger *l = ledger_new(SIZE * 14, 1);
    struct run_result result;
    run_result_init(&result, SIZE);
    char *data = malloc(SIZE);
    memset(data, 1, SIZE);
    assert_int_equal(buf_append(&result.run.out, data, SIZE), 0);
    result.run.status = RUN_OK;
    struct answer *a = result_answer(&result, ENCODE_UTF8, NULL, l, 0, NULL);
    assert_non_null(a);
    assert_in_range(a->len, SIZE * 6, SIZE * 6 + 1000);
    assert_in_range(ledger_sum(l), a->len, a->len + 200);
    json_t *json = json_loadb(a->text, a->len, 0, NULL);
    assert_int_equal(json_string_length(json_object_get(json, "stdout")), SIZE);
    json_decref(json);
    assert_null(result_answer(&result, ENCODE_UTF8, NULL, l, 0, NULL)); /* no second one fits */
    answer_release(a);
    a = result_answer(&result, ENCODE_BASE64, NULL, l, 0, NULL);
    assert_in_range(a->len, SIZE / 3 * 4, SIZE / 3 * 4 + 1000);
    answer_release(a);
    assert_int_equal(ledger_sum(l), 0);
    run_result_done(&result);
    free(data);
    ledger_free(l);
}

static void a_result_reads_as_json(void **state)
{
    struct run_result result;
    struct err err = {0};
    run_result_init(&result, 1000);
    (void)snprintf(result.id, sizeof(result.id), "run_x");
    result.run.limits_hit = 3;
    result.run.exited = true;
    result.run.exit_code = 7;
    result.has_compile = true;
    (void)buf_append(&result.run.err, "\xff\"", 2);
    run_files_add(&result.files, "a", strdup("12345"), 5, true);
    run_files_add(&result.files, "b", strdup(""), 0, false);
    result.files.items[1].error = "too_large";
    json_t *json = result_json(&result, ENCODE_UTF8);
    assert_int_equal(json_integer_value(json_object_get(json, "exit_code")), 7);
    assert_int_equal(json_array_size(json_object_get(json, "limits_hit")), 2);
    assert_string_equal(json_string_value(json_object_get(json, "stderr")), "\xef\xbf\xbd\"");
    assert_true(json_is_object(json_object_get(json, "compile")));
    const json_t *files = json_object_get(json, "files");
    assert_string_equal(
        json_string_value(json_object_get(json_array_get(files, 0), "content")), "MTIzNDU=");
    assert_string_equal(
        json_string_value(json_object_get(json_array_get(files, 1), "error")), "too_large");
    assert_null(json_object_get(json, "error"));
    json_decref(json);
    (void)err_set(&err, ERR_UNAVAILABLE, 1, "no \"room\"");
    struct answer *a = result_answer(&result, ENCODE_BASE64, &err, NULL, -1, NULL);
    json = json_loadb(a->text, a->len, 0, NULL);
    assert_string_equal(json_string_value(json_object_get(json, "status")), "internal_error");
    assert_string_equal(json_string_value(json_object_get(json, "message")), "no \"room\"");
    assert_string_equal(
        json_string_value(json_object_get(json_object_get(json, "error"), "code")),
        "unavailable");
    json_decref(json);
    answer_release(a);
    run_result_done(&result);
}

/* What a text weighs is at least what its value takes, whatever its shape. */
static void a_text_weighs_at_least_what_its_value_takes(void **state)
{
    static const struct {
        const char *begin, *item, *end;
    } shapes[] = {{"[", "[]", "]"}, {"[", "{}", "]"}, {"[", "{\"a\":1}", "]"},
        {"[", "[[[[1]]]]", "]"}, {"[", "1", "]"}, {"[", "\"\"", "]"}, {"[", "1.5", "]"},
        {"[", "{\"a\":{\"b\":[null]},\"c\":\"dddddddddd\"}", "]"},
        {"[", "\"\\u0001\\u20ac\"", "]"}};
#ifdef __SANITIZE_ADDRESS__
    test_skip("the sanitizer's malloc does not tell what it gave");
#endif
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        enum { ITEMS = 20000 };
        struct buf b;
        struct err err = {0};
        size_t weight;
        struct json_problem problem;
        buf_init(&b, 8 << 20);
        (void)buf_append_str(&b, shapes[i].begin);
        for (int k = 0; k < ITEMS; k++) {
            (void)buf_append_str(&b, k ? "," : "");
            (void)buf_append_str(&b, shapes[i].item);
        }
        (void)buf_append_str(&b, shapes[i].end);
        assert_int_equal(json_read_weigh(b.data, b.len, &weight, &err), 0);
        struct mallinfo2 before = mallinfo2();
        json_t *value = json_read(b.data, b.len, &problem);
        struct mallinfo2 after = mallinfo2();
        assert_non_null(value);
        size_t taken = after.uordblks + after.hblkhd - before.uordblks - before.hblkhd;
        assert_in_range(taken, ITEMS, weight);
        json_decref(value);
        buf_done(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strings_are_those_of_jansson),
        cmocka_unit_test(base64_is_that_of_results),
        cmocka_unit_test(numbers_are_short),
        cmocka_unit_test(a_result_is_counted_with_its_exact_size),
        cmocka_unit_test(a_result_reads_as_json),
        cmocka_unit_test(a_text_weighs_at_least_what_its_value_takes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
