/* SPDX-License-Identifier: Apache-2.0 */

/* Tools that the caller of an exec offers to its code. The code calls a tool by name. A call
 * reaches the caller only if its name was offered and the budget allows it. The code gets every
 * refusal as an error of that call. */

#include "session/exec/internal.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"
#include "state/effects.h"
#include "state/state.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { LOOK_MS = 100 }; /* between two looks at approvals that are pending */

void tools_begin(struct session *s, const struct exec_spec *spec)
{
    (void)pthread_mutex_lock(&s->lock);
    s->tools = (struct session_tools){.offered = spec->tools,
        .is_catalog = spec->is_catalog,
        .preview = spec->preview,
        .budget = spec->max_tool_calls,
        .timeout_ms = spec->tool_timeout_ms};
    (void)pthread_mutex_unlock(&s->lock);
}

static void clear_call(struct session *s, struct tool_call *call)
{
    json_decref(call->answer);
    json_decref(call->frame);
    approval_drop(call->approval);
    purse_give(&s->purse, call->weight);
    *call = (struct tool_call){0};
}

void tools_end(struct session *s)
{
    (void)pthread_mutex_lock(&s->lock);
    for (unsigned i = 0; i < TOOL_CALLS_PENDING; i++)
        clear_call(s, &s->tools.calls[i]);
    s->tools = (struct session_tools){0};
    (void)pthread_mutex_unlock(&s->lock);
}

static struct tool_call *find_call(struct session *s, const char *id)
{
    for (unsigned i = 0; i < TOOL_CALLS_PENDING; i++) {
        if (str_eq(s->tools.calls[i].id, id))
            return &s->tools.calls[i];
    }
    return NULL;
}

static bool is_offered(const struct session *s, const char *name)
{
    for (size_t i = 0; i < json_array_size(s->tools.offered); i++) {
        const json_t *tool = json_array_get(s->tools.offered, i);
        if (str_eq(json_string_value(json_object_get(tool, "name")), name))
            return true;
    }
    return false;
}

static int queue_json(struct session *s, const json_t *value)
{
    char *text = json_dumps(value, JSON_COMPACT);
    int r = text ? channel_queue(&s->channel, "tool_result", text, strlen(text)) : -ENOMEM;
    free(text);
    return r;
}

static int refuse(struct session *s, const char *id, const char *why)
{
    json_t *answer = json_pack("{s:s, s:s}", "id", id, "error", why);
    int r = queue_json(s, answer);
    json_decref(answer);
    return r;
}

/* A call of a catalog's tool as an effect: exactly what the tool gets, so that nobody approves
 * something else. All tools of the catalog only read so far. */
static json_t *catalog_fields(const json_t *input)
{
    json_t *path = json_object_get(input, "path");
    json_t *arguments = json_object_get(input, "input");
    bool has_arguments = arguments && !json_is_null(arguments);
    return json_pack("{s:O?, s:o, s:b}", "tool", path, "arguments",
        has_arguments ? json_incref(arguments) : json_object(), "read_only", true);
}

/* Asks about a call if a rule of the operator wants it. 0: the call may go on, or waits if
 * *ret is set. -EPERM with err: it may not. */
static int ask_approval(struct session *s, const char *name, const json_t *input,
    struct approval **ret, struct err *err)
{
    const struct state *state = s->all->state;
    struct approvals *approvals = state->approvals;
    struct effect effect = {0};
    *ret = NULL;
    if (!approvals || !approvals_have_rules(approvals, EFFECT_TOOL_CALL))
        return 0;
    cleanup_free struct network_policy *policy = session_network_policy(s->network);
    const struct effects_request reach = {
        .mounts = s->spec.mounts, .mount_count = s->spec.mount_count, .network = policy};
    json_t *box = effects_box(state, &reach);
    const struct approval_asker asker = {.owner = s->owner,
        .session = s->id,
        .by_rule_only = true,
        .brings_preview = true,
        .has_foreign_text = s->has_foreign_text,
        .box = box};
    json_t *fields = s->tools.is_catalog
                         ? catalog_fields(input)
                         : json_pack("{s:s, s:O}", "tool", name, "arguments", input);
    int r = effect_make(EFFECT_TOOL_CALL, fields, &effect, err);
    json_decref(fields);
    if (r == 0)
        r = approvals_ask(approvals, &effect, &asker, ret, err);
    effect_done(&effect);
    json_decref(box);
    if (r == 0)
        r = approval_verdict(*ret, err);
    if (r == -EAGAIN)
        return 0;
    approval_drop(*ret);
    *ret = NULL;
    return r;
}

int tools_call(struct session *s, json_t *frame, size_t bytes, bool *ret_is_asked)
{
    const char *id;
    const char *name;
    size_t id_len, name_len;
    json_t *input;
    *ret_is_asked = false;
    if (json_unpack(frame, "{s:s%, s:s%, s:o !}", "id", &id, &id_len, "name", &name, &name_len,
            "input", &input) < 0 ||
        strlen(id) != id_len || strlen(name) != name_len || !json_is_object(input) ||
        id[0] == '\0' || id_len > TOOL_ID_MAX || find_call(s, id))
        return -EBADMSG;
    struct tool_call *call = find_call(s, "");
    if (s->tools.preview) {
        preview_note_call(s->tools.preview, name, input);
        return refuse(s, id, "it was not approved");
    }
    if (!is_offered(s, name))
        return refuse(s, id, "this tool was not offered");
    if (s->tools.budget == 0)
        return refuse(s, id, "the budget of tool calls of this exec is used up");
    if (bytes > TOOL_INPUT_MAX)
        return refuse(s, id, "the input of the call is too large");
    if (!call)
        return refuse(s, id, "too many calls wait for their answer");
    struct err err = {0};
    struct approval *approval;
    s->tools.budget--; /* a denied call counts, too: each one is a row of the log */
    if (ask_approval(s, name, input, &approval, &err) < 0)
        return refuse(s, id, err.message);
    s->tools.made++;
    (void)snprintf(call->id, sizeof(call->id), "%s", id);
    call->deadline_ms = approval ? UINT64_MAX : clock_ms() + s->tools.timeout_ms;
    call->approval = approval;
    call->frame = approval ? json_incref(frame) : NULL;
    if (approval && !s->tools.paused_ms)
        s->tools.paused_ms = clock_ms();
    *ret_is_asked = !approval;
    if (approval && approval_awaits_preview(approval))
        preview_begin(s, id, approval);
    return 0;
}

uint64_t tools_paused_ms(const struct session *s)
{
    return s->tools.paused_ms;
}

json_t *tools_next_approved(struct session *s)
{
    json_t *approved = NULL;
    bool is_paused = false;
    for (unsigned i = 0; i < TOOL_CALLS_PENDING; i++) {
        struct tool_call *call = &s->tools.calls[i];
        struct err err = {0};
        int r = call->approval && !approved ? approval_verdict(call->approval, &err) : -EAGAIN;
        if (r == 0) {
            approval_drop(call->approval);
            call->approval = NULL;
            call->deadline_ms = clock_ms() + s->tools.timeout_ms;
            approved = call->frame;
            call->frame = NULL;
        } else if (r != -EAGAIN) {
            (void)refuse(s, call->id, err.message);
            clear_call(s, call);
        }
        is_paused = is_paused || call->approval;
    }
    if (!is_paused && !approved)
        s->tools.paused_ms = 0;
    return approved;
}

int tools_pass(struct session *s)
{
    uint64_t now = clock_ms();
    int r = 0;
    for (unsigned i = 0; r == 0 && i < TOOL_CALLS_PENDING; i++) {
        struct tool_call *call = &s->tools.calls[i];
        if (!call->id[0] || call->approval || (!call->answer && now < call->deadline_ms))
            continue;
        s->has_foreign_text = s->has_foreign_text || call->answer;
        r = call->answer ? queue_json(s, call->answer)
                         : refuse(s, call->id, "nobody answered the call in time");
        clear_call(s, call);
    }
    return r;
}

bool tools_have_news(const struct session *s)
{
    uint64_t now = clock_ms();
    bool have = false;
    for (unsigned i = 0; i < TOOL_CALLS_PENDING; i++) {
        const struct tool_call *call = &s->tools.calls[i];
        have = have || (call->id[0] && (call->answer || now >= call->deadline_ms));
    }
    return have;
}

uint64_t tools_deadline_ms(const struct session *s)
{
    uint64_t next = UINT64_MAX;
    for (unsigned i = 0; i < TOOL_CALLS_PENDING; i++) {
        const struct tool_call *call = &s->tools.calls[i];
        if (call->id[0] && call->deadline_ms < next)
            next = call->deadline_ms;
        if (call->approval && next > clock_ms() + LOOK_MS)
            next = clock_ms() + LOOK_MS;
    }
    return next;
}

int session_answer_tool(struct session *s, json_t *answer, size_t weight, struct err *err)
{
    const char *id = json_string_value(json_object_get(answer, "id"));
    int r = 0;
    (void)pthread_mutex_lock(&s->lock);
    struct tool_call *call = s->state == SESSION_BUSY && id && *id ? find_call(s, id) : NULL;
    if (!call || call->approval) {
        r = err_set(err, ERR_NOT_FOUND, ENOENT,
            "no call with this id waits for an answer; it may have taken too long");
    } else if (call->answer) {
        r = err_set(err, ERR_CONFLICT, EALREADY, "this call was answered already");
    } else if (!purse_take(&s->purse, weight)) {
        r = state_full(err);
    } else {
        call->weight = weight;
        call->answer = json_incref(answer);
        session_wake(s);
    }
    (void)pthread_mutex_unlock(&s->lock);
    return r;
}
