/* SPDX-License-Identifier: Apache-2.0 */

/* Control messages of a terminal's client, and the detection of dead clients (terminal.h). */

#include "base/str.h"
#include "session/terminal.h"

#include <errno.h>
#include <jansson.h>

/* A client is pinged after this time without a message. */
enum { PING_MS = 20000 };

int terminal_side(const char *name, int64_t value, unsigned *ret, struct err *err)
{
    if (value < 1 || value > TERMINAL_SIDE_MAX)
        return err_field(err, name, "must be a number from 1 to %d", TERMINAL_SIDE_MAX);
    *ret = (unsigned)value;
    return 0;
}

/* A value that is not an integer becomes 0, which terminal_side() refuses. */
static int get_side(const json_t *object, const char *field, unsigned *ret, struct err *err)
{
    return terminal_side(field, json_integer_value(json_object_get(object, field)), ret, err);
}

int terminal_control_parse(
    const char *text, size_t len, struct terminal_size *ret, struct err *err)
{
    if (len > TERMINAL_CONTROL_MAX)
        return err_set(err, ERR_TOO_LARGE, EFBIG, "a text message has at most %d bytes",
            TERMINAL_CONTROL_MAX);
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

void terminal_heard(struct terminal_silence *s, uint64_t now_ms)
{
    s->since_ms = s->asked_ms = now_ms;
}

enum terminal_verdict terminal_judge(
    struct terminal_silence *s, bool is_listening, uint64_t now_ms)
{
    if (!is_listening)
        /* The server does not read now, so silence is not the client's fault. */
        s->since_ms = now_ms;
    if (now_ms - s->since_ms >= TERMINAL_SILENT_MS)
        return TERMINAL_GIVE_UP;
    if (now_ms - s->asked_ms < PING_MS)
        return TERMINAL_BEAR;
    s->asked_ms = now_ms;
    return TERMINAL_PING;
}
