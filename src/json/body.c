/* SPDX-License-Identifier: Apache-2.0 */

/* What request bodies have in common: JSON of a stranger, base64. What json_read() does
 * not take jansson does, or says what is wrong; a scan before it bounds depth and the number of
 * values, so that a bomb costs no more than two passes over its bytes. */

#include "json/body.h"

#include "base/cleanup.h"
#include "base/str.h"
#include "json/read.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
        if (depth > JSON_READ_DEPTH)
            return err_set(err, ERR_INVALID, EBADMSG, "the JSON is deeper than %d levels",
                JSON_READ_DEPTH);
        if (values > JSON_READ_VALUES)
            return err_set(err, ERR_INVALID, EBADMSG, "the JSON has more than %d values",
                JSON_READ_VALUES);
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
    if ((*ret = json_read(text, len)))
        return 0;
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
