/* SPDX-License-Identifier: Apache-2.0 */

/* Messages about a terminal (session_terminal.h), of a stranger. */

#include "base/str.h"
#include "core/session_terminal.h"

#include <errno.h>
#include <jansson.h>

static int get_side(const json_t *object, const char *field, unsigned *ret, struct err *err)
{
    const json_t *value = json_object_get(object, field);
    json_int_t n = json_integer_value(value);
    if (!json_is_integer(value) || n < 1 || n > TERMINAL_SIDE_MAX)
        return err_field(err, field, "must be a number from 1 to %d", TERMINAL_SIDE_MAX);
    *ret = (unsigned)n;
    return 0;
}

int terminal_control_parse(
    const char *text, size_t len, struct terminal_size *ret, struct err *err)
{
    if (len > TERMINAL_CONTROL_MAX)
        return err_set(err, ERR_TOO_LARGE, EFBIG, "the message is too long");
    json_t *object = json_loadb(text, len, JSON_REJECT_DUPLICATES, NULL);
    const char *type = json_string_value(json_object_get(object, "type"));
    struct terminal_size size;
    int r = 0;
    if (!type || !str_eq(type, "resize") || json_object_size(object) != 3)
        r = err_set(err, ERR_INVALID, EINVAL,
            "a text message is {\"type\":\"resize\",\"rows\":N,\"cols\":N}");
    if (r == 0 && (r = get_side(object, "rows", &size.rows, err)) == 0 &&
        (r = get_side(object, "cols", &size.cols, err)) == 0)
        *ret = size;
    json_decref(object);
    return r;
}
