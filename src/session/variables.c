/* SPDX-License-Identifier: Apache-2.0 */

/* The variables of a session, as its interpreter tells them. The interpreter shares its process
 * with user code, so the list may say anything; only its shape and its size are checked. */

#include "session/internal.h"

/* Bounds of docs/internals/kernels.md. Text is in bytes: a character has at most four. */
enum { VARIABLES_MAX = 1000, TEXT_MAX = 4 * 200 };

static bool is_text(const json_t *value)
{
    return json_is_string(value) && json_string_length(value) <= TEXT_MAX;
}

static bool is_variable(const json_t *v)
{
    const json_t *size = json_object_get(v, "size");
    return json_object_size(v) == 4 && is_text(json_object_get(v, "name")) &&
           is_text(json_object_get(v, "type")) && is_text(json_object_get(v, "preview")) &&
           (json_is_null(size) || json_is_integer(size));
}

static bool are_variables(const json_t *answer)
{
    const json_t *list = json_object_get(answer, "variables");
    bool ok = json_object_size(answer) == 2 &&
              json_is_integer(json_object_get(answer, "more")) && json_is_array(list) &&
              json_array_size(list) <= VARIABLES_MAX;
    for (size_t i = 0; ok && i < json_array_size(list); i++)
        ok = is_variable(json_array_get(list, i));
    return ok;
}

int session_variables(struct session *s, json_t **ret, struct err *err)
{
    json_t *answer = NULL;
    int r = session_take(s, false, false, -1, err);
    if (r < 0)
        return r;
    int asked = session_ask(s, "variables", NULL, FRAME_VARIABLES, are_variables, &answer);
    r = session_asked(s, asked, err);
    if (r == 0)
        *ret = answer;
    return r;
}
