/* SPDX-License-Identifier: Apache-2.0 */

/* What request bodies have in common: JSON of a stranger, base64, limits. jansson checks
 * syntax, UTF-8 and duplicate keys; a scan before it bounds depth and the number of values, so
 * that a bomb costs no more than one pass over its bytes. */

#include "core/json_run.h"

#include "base/str.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEPTH_MAX = 64, VALUES_MAX = 100000 };

/* Counts brackets and separators outside strings; what is malformed is left to the parser. */
static int scan(const char *text, size_t len, struct err *err)
{
    unsigned depth = 0;
    unsigned values = 0;
    bool in_string = false;
    for (size_t i = 0; i < len; i++) {
        char c = text[i];
        if (in_string) {
            i += c == '\\';
            in_string = c != '"';
            continue;
        }
        in_string = c == '"';
        depth += c == '[' || c == '{';
        depth -= (c == ']' || c == '}') && depth > 0;
        values += c == ',';
        if (depth > DEPTH_MAX)
            return err_set(
                err, ERR_INVALID, EBADMSG, "the JSON is deeper than %d levels", DEPTH_MAX);
        if (values > VALUES_MAX)
            return err_set(
                err, ERR_INVALID, EBADMSG, "the JSON has more than %d values", VALUES_MAX);
    }
    return 0;
}

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
    int r = scan(text, len, err);
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

static int digit(char c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

int json_run_base64(const char *text, size_t len, char **ret, size_t *ret_len)
{
    size_t pad = len >= 1 && text[len - 1] == '=' ? 1 : 0;
    pad += pad && len >= 2 && text[len - 2] == '=';
    if (len % 4 != 0)
        return -EINVAL;
    char *out = malloc(len / 4 * 3 + 1);
    if (!out)
        return -ENOMEM;
    size_t used = 0;
    unsigned word = 0;
    for (size_t i = 0; i < len; i++) {
        int value = i >= len - pad ? 0 : digit(text[i]);
        if (value < 0) {
            free(out);
            return -EINVAL;
        }
        word = word << 6 | (unsigned)value;
        if (i % 4 == 3) {
            out[used++] = (char)(word >> 16);
            out[used++] = (char)(word >> 8);
            out[used++] = (char)word;
            word = 0;
        }
    }
    used -= pad;
    out[used] = '\0';
    *ret = out;
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
