/* SPDX-License-Identifier: Apache-2.0 */

/* See body.h. json/read.c parses; this file adds the messages and decodes base64. */

#include "json/body.h"

#include "base/cleanup.h"
#include "base/str.h"
#include "json/read.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int json_run_parse_any(
    const char *text, size_t len, json_t **ret, size_t *ret_at, struct err *err)
{
    struct json_problem problem = {0};
    *ret = json_read(text, len, &problem);
    *ret_at = problem.at;
    return *ret ? 0
                : err_set(err, ERR_INVALID, EBADMSG,
                      "the body is not valid JSON: %s (byte %zu)", problem.text, problem.at);
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

/* Decodes four digits into three bytes; false when one is not a digit. `values` maps a
 * character to its value plus 1, and to 0 when it is not a digit. */
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
