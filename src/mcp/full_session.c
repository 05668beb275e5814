/* SPDX-License-Identifier: Apache-2.0 */

/* Sessions as tools of the full surface. A session of another key is answered exactly like one
 * that does not exist. */

#include "mcp/full.h"

#include "base/cleanup.h"
#include "service/image.h"
#include "session/decode.h"
#include "state/state.h"

#include <stdio.h>
#include <string.h>

struct session *full_find_session(struct mcp_call *call, const json_t *arguments, json_t **ret)
{
    const char *id = mcp_text(arguments, "session_id", ID_MAX - 1);
    struct err err = {0};
    struct session *s =
        id ? session_find(mcp_state(call->mcp)->sessions, id, call->owner) : NULL;
    if (!s) {
        (void)session_not_found(id ? id : "", &err);
        *ret = mcp_tool_error(&err);
    }
    return s;
}

json_t *full_object(json_t *object)
{
    cleanup_free char *text = json_dumps(object, JSON_INDENT(2) | RESULT_JSON_FLAGS);
    return mcp_text_result(text ? text : "", text ? strlen(text) : 0, object, false);
}

static void tell(struct mcp_call *call)
{
    mcp_changed(call->mcp, call->surface, call->owner, "resources", NULL);
}

/* The members of a session that a model needs. */
static json_t *brief(struct session *s)
{
    static const char *const names[] = {
        "id", "name", "language", "state", "expires_at", "cwd", "parent", "from_checkpoint"};
    json_t *all = session_json(s);
    json_t *object = json_object();
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        json_t *value = json_object_get(all, names[i]);
        if (value && !json_is_null(value))
            (void)json_object_set(object, names[i], value);
    }
    (void)json_object_set(object, "session_id", json_object_get(all, "id"));
    (void)json_object_del(object, "id");
    json_decref(all);
    return object;
}

int full_session_create(struct mcp_call *call, const json_t *arguments, json_t **ret)
{
    struct state *state = mcp_state(call->mcp);
    struct session_spec spec;
    struct session *s = NULL;
    struct err err = {0};
    int r = json_session_decode(arguments, &state->runtimes, &state->config, &spec, &err);
    if (r == 0)
        r = service_session_image(state, call->owner, &spec, &err);
    if (r == 0)
        r = session_create(state->sessions, &spec, call->owner, call->cancel_fd, &s, &err);
    session_spec_done(&spec);
    *ret = r == 0 ? full_object(brief(s)) : mcp_tool_error(&err);
    session_unref(s);
    if (r == 0)
        tell(call);
    return 0;
}

int full_session_fork(struct mcp_call *call, const json_t *arguments, json_t **ret)
{
    struct fork_result result;
    struct err err = {0};
    const json_t *wanted = json_object_get(arguments, "count");
    unsigned count = wanted ? (unsigned)json_number_value(wanted) : 1;
    struct session *s = full_find_session(call, arguments, ret);
    if (!s)
        return 0;
    if (session_fork(s, count, call->cancel_fd, &result, &err) < 0) {
        *ret = mcp_tool_error(&err);
    } else {
        json_t *list = json_array();
        for (unsigned i = 0; i < count; i++) {
            (void)json_array_append_new(list, brief(result.copies[i]));
            session_unref(result.copies[i]);
        }
        *ret = full_object(json_pack("{s:o, s:s, s:s}", "sessions", list, "memory",
            result.has_memory ? "copied" : "fresh", "files",
            result.is_whole ? "copied" : "incomplete"));
        tell(call);
    }
    session_unref(s);
    return 0;
}

int full_session_checkpoint(struct mcp_call *call, const json_t *arguments, json_t **ret)
{
    struct err err = {0};
    json_t *made = NULL;
    const char *name = mcp_text(arguments, "name", CHECKPOINT_NAME_MAX);
    struct session *s = full_find_session(call, arguments, ret);
    if (!s)
        return 0;
    if (session_checkpoint(s, name ? name : "", call->cancel_fd, &made, &err) < 0)
        *ret = mcp_tool_error(&err);
    else
        *ret = full_object(made);
    session_unref(s);
    return 0;
}

int full_session_rollback(struct mcp_call *call, const json_t *arguments, json_t **ret)
{
    struct err err = {0};
    const char *name = mcp_text(arguments, "checkpoint", CHECKPOINT_NAME_MAX);
    struct session *s = full_find_session(call, arguments, ret);
    if (!s)
        return 0;
    if (session_rollback(s, name ? name : "", call->cancel_fd, &err) < 0)
        *ret = mcp_tool_error(&err);
    else
        *ret = full_object(brief(s));
    session_unref(s);
    return 0;
}

int full_session_close(struct mcp_call *call, const json_t *arguments, json_t **ret)
{
    static const char text[] = "The session has ended; its files are gone.";
    struct session *s = full_find_session(call, arguments, ret);
    if (!s)
        return 0;
    session_delete(s);
    session_unref(s);
    *ret = mcp_text_result(text, strlen(text), NULL, false);
    tell(call);
    return 0;
}
