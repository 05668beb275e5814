/* SPDX-License-Identifier: Apache-2.0 */

/* What request bodies have in common: JSON of a stranger, base64, limits. What json_read() does
 * not take jansson does, or says what is wrong; json_read_weigh() before it bounds depth and
 * the number of values, so that a bomb costs no more than two passes over its bytes. */

#include "core/json_run.h"

#include "base/cleanup.h"
#include "base/str.h"
#include "core/json_read.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Where the token begins that the parser stumbled over: it tells where it ends, and the token.
 */
static size_t begin_of(const json_error_t *problem)
{
    const char *near = strstr(problem->text, " near '");
    const char *quote = near ? strrchr(near, '\'') : NULL;
    size_t end = problem->position > 0 ? (size_t)problem->position : 0;
    size_t token = near && quote > near + 7 ? (size_t)(quote - (near + 7)) : 0;
    return token < end ? end - token : 0;
}

int json_run_parse_any(
    const char *text, size_t len, json_t **ret, size_t *ret_at, struct err *err)
{
    json_error_t problem;
    *ret_at = 0;
    if ((*ret = json_read(text, len)))
        return 0;
    size_t weight;
    int r = json_read_weigh(text, len, &weight, err);
    if (r < 0)
        return r;
    *ret = json_loadb(
        text, len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_ANY, &problem);
    if (*ret)
        return 0;
    *ret_at = begin_of(&problem);
    return err_set(err, ERR_INVALID, EBADMSG, "the body is not valid JSON: %s (byte %d)",
        problem.text, problem.position);
}

int json_run_parse(const char *text, size_t len, json_t **ret, struct err *err)
{
    json_t *body;
    size_t at;
    int r = json_run_parse_any(text, len, &body, &at, err);
    if (r < 0)
        return r;
    if (!json_is_object(body)) {
        json_decref(body);
        return err_set(err, ERR_INVALID, EINVAL, "the body must be a JSON object");
    }
    *ret = body;
    return 0;
}

/* Four digits to three bytes; false when one is none. `values` has the value of each, and 1. */
static bool decode_four(const unsigned char values[256], const char in[4], char out[3])
{
    unsigned word = 0;
    bool is_good = true;
    for (int i = 0; i < 4; i++) {
        unsigned value = values[(unsigned char)in[i]];
        is_good = is_good && value;
        word = word << 6 | (value - 1);
    }
    out[0] = (char)(word >> 16);
    out[1] = (char)(word >> 8);
    out[2] = (char)word;
    return is_good;
}

int json_run_base64(const char *text, size_t len, char **ret, size_t *ret_len)
{
    size_t pad = len >= 1 && text[len - 1] == '=' ? 1 : 0;
    pad += pad && len >= 2 && text[len - 2] == '=';
    if (len % 4 != 0)
        return -EINVAL;
    cleanup_free char *out = malloc(len / 4 * 3 + 1);
    if (!out)
        return -ENOMEM;
    static const char digits[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    unsigned char values[256] = {0};
    for (unsigned char i = 0; digits[i]; i++)
        values[(unsigned char)digits[i]] = i + 1;
    size_t whole = len - (pad ? 4 : 0);
    size_t used = 0;
    for (size_t i = 0; i < whole; i += 4, used += 3) {
        if (!decode_four(values, text + i, out + used))
            return -EINVAL;
    }
    if (pad) {
        char last[4] = "AAAA";
        memcpy(last, text + whole, 4 - pad);
        if (!decode_four(values, last, out + used))
            return -EINVAL;
        used += 3 - pad;
    }
    out[used] = '\0';
    *ret = take_ptr(out);
    *ret_len = used;
    return 0;
}

/* One number of a limits object in units of the table. */
static int get_limit(const struct limit_info *info, const char *field, const json_t *value,
    uint64_t *ret, struct err *err)
{
    if (json_is_integer(value)) {
        json_int_t n = json_integer_value(value);
        if (n < 1 || n > INT64_MAX / 1000)
            return err_field(err, field, "%s is out of range", field);
        *ret = (uint64_t)n * info->scale;
        return 0;
    }
    if (!json_is_real(value) ||
        (info->scale == 1 && floor(json_real_value(value)) != json_real_value(value)))
        return err_field(err, field, "%s must be %s", field,
            info->scale == 1 ? "a whole number" : "a number");
    double scaled = json_real_value(value) * info->scale;
    if (!(scaled >= 1) || scaled > 1e15)
        return err_field(err, field, "%s is out of range", field);
    *ret = (uint64_t)(scaled + 0.5);
    return 0;
}

int json_run_limits(
    const json_t *value, const char *prefix, struct run_limits *ret, struct err *err)
{
    const char *key;
    json_t *item;
    char field[96];
    if (!json_is_object(value)) {
        (void)snprintf(field, sizeof(field), "%.*s", (int)strlen(prefix) - 1, prefix);
        return err_field(err, field, "%s must be an object of numbers", field);
    }
    json_object_foreach((json_t *)value, key, item)
    {
        const struct limit_info *info = NULL;
        for (size_t i = 0; i < limit_count; i++) {
            if (str_eq(limit_table[i].name, key))
                info = &limit_table[i];
        }
        (void)snprintf(field, sizeof(field), "%s%.64s", prefix, key);
        if (!info)
            return err_field(err, field, "unknown limit");
        int r = get_limit(info, field, item, limit_member(ret, info), err);
        if (r < 0)
            return r;
    }
    return 0;
}
