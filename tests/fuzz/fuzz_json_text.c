/* SPDX-License-Identifier: Apache-2.0 */

/* Output of any bytes, in pieces of any size, as a JSON string: the same bytes that jansson
 * writes for the repaired text. And any text that is taken for JSON: what it weighs is told
 * without harm, and its reader agrees on what is too deep or too much. */

#include "base/utf8.h"
#include "json/read.h"
#include "json/text.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct bytes {
    const char *data;
    size_t len;
    size_t piece;
};

static void write_bytes(struct json_text *t, const void *context)
{
    const struct bytes *b = context;
    json_text_open(t);
    for (size_t at = 0; at < b->len; at += b->piece)
        json_text_part(t, b->data + at, b->len - at < b->piece ? b->len - at : b->piece);
    json_text_close(t);
}

static void check(bool holds)
{
    if (!holds)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct err err = {0};
    size_t len;
    size_t weight;
    if (size < 2)
        return 0;
    const struct bytes b = {(const char *)data + 1, size - 1, data[0] + 1u};
    char *repaired = utf8_repair(b.data, b.len, &len);
    json_t *value = json_stringn_nocheck(repaired, len);
    char *expected = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
    struct answer *a = json_text_answer(NULL, -1, NULL, write_bytes, &b);
    check(a->len == strlen(expected) && memcmp(a->text, expected, a->len) == 0);
    answer_release(a);
    free(expected);
    free(repaired);
    json_decref(value);
    struct json_problem problem;
    bool is_small = json_read_weigh(b.data, b.len, &weight, &err) == 0;
    value = json_read(b.data, b.len, &problem);
    check(is_small || !value);
    check(weight >= 2 * b.len);
    json_decref(value);
    return 0;
}
