/* SPDX-License-Identifier: Apache-2.0 */

/* See body.h. json/read.c parses; this file adds the messages. */

#include "json/body.h"

#include "json/read.h"

#include <errno.h>
#include <math.h>
#include <string.h>

int json_run_parse_any(
    const char *text, size_t len, json_t **ret, size_t *ret_at, struct err *err)
{
    struct json_problem problem = {0};
    *ret = json_read(text, len, &problem);
    *ret_at = problem.at;
    return *ret ? 0
                : err_set(err, ERR_INVALID, EBADMSG, "%s: %s (byte %zu)",
                      problem.is_range ? "the body has a number out of range"
                                       : "the body is not valid JSON",
                      problem.text, problem.at);
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

bool json_whole(const json_t *value, int64_t *ret)
{
    double real = json_real_value(value);
    if (json_is_real(value) && real == floor(real))
        *ret = real >= 0x1p63 ? INT64_MAX : real < -0x1p63 ? INT64_MIN : (int64_t)real;
    else if (json_is_integer(value))
        *ret = json_integer_value(value);
    else
        return false;
    return true;
}

static bool is_among(const char *name, const char *const *names)
{
    while (names && *names && strcmp(*names, name) != 0)
        names++;
    return names && *names;
}

int json_known(
    const json_t *object, const char *const *names, const char *const *more, struct err *err)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)object, key, value)
    {
        if (!is_among(key, names) && !is_among(key, more))
            return err_field(err, key, "unknown field `%.64s`", key);
    }
    return 0;
}

json_t *json_error(const struct err *err)
{
    const struct err_info *info = &err_table[err->code == ERR_NONE ? ERR_INTERNAL : err->code];
    json_t *error = json_pack("{s:s, s:s}", "code", info->name, "message", err->message);
    if (err->field[0])
        (void)json_object_set_new(error, "field", json_string(err->field));
    if (err->kind)
        (void)json_object_set_new(error, "detail", json_pack("{s:s}", "kind", err->kind));
    return error;
}
