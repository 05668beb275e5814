/* SPDX-License-Identifier: Apache-2.0 */

/* Reports an execution to the client (execution.h), and the tool `resume`.
 *
 * A person is asked in the first way that the client supports: a form of the client (a request
 * on the handshake wire, input_required on the stateless one), else the model gets a text and
 * calls `resume` with the decision. */

#include "mcp/execution/execution.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/str.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define INPUT_NAME "decision"

static json_t *running(const struct mcp_call *call, const struct execution_view *view)
{
    if (call->surface->has_wait) {
        cleanup_free char *how =
            xasprintf("Still running. Call wait with id %s to get the result.", view->id);
        return mcp_text_result(how, strlen(how),
            json_pack("{s:s, s:s}", "status", "running", "id", view->id), false);
    }
    cleanup_free char *text = xasprintf("Still running.\nexecutionId: %s\nCall resume with "
                                        "this id and action \"accept\" to wait for the result, "
                                        "or with action \"cancel\" to stop it.",
        view->id);
    return mcp_text_result(text, strlen(text),
        json_pack("{s:s, s:s}", "status", "running", "executionId", view->id), false);
}

static json_t *paused(const struct execution_view *view)
{
    const char *message = json_string_value(json_object_get(view->interaction, "message"));
    const char *how = mcp_text(view->interaction, "instructions", 4096);
    cleanup_free char *text =
        xasprintf("Execution paused: %s\nexecutionId: %s\n%s", message ? message : "", view->id,
            how ? how
                : "Ask the user, then call resume with this id and action \"accept\", "
                  "\"decline\" or \"cancel\".");
    return mcp_text_result(text, strlen(text),
        json_pack("{s:s, s:s, s:O}", "status", "waiting_for_interaction", "executionId",
            view->id, "interaction", view->interaction),
        false);
}

/* The params of elicitation/create for a pause. */
static json_t *form(const struct mcp_call *call, const struct execution_view *view)
{
    json_t *schema = json_object_get(view->interaction, "requestedSchema");
    json_t *params =
        json_pack("{s:O}", "message", json_object_get(view->interaction, "message"));
    (void)json_object_set_new(params, "requestedSchema",
        schema ? json_incref(schema)
               : json_pack("{s:s, s:{}}", "type", "object", "properties"));
    if (mcp_is_modern(call))
        (void)json_object_set_new(params, "mode", json_string("form"));
    return params;
}

/* Gives the client's answer to the execution. Anything but a clear decision counts as no
 * decision. */
static bool decide(struct execution *e, unsigned pause, const json_t *answer)
{
    static const char *const actions[] = {"accept", "decline", "cancel"};
    const char *action = mcp_text(answer, "action", 16);
    const json_t *content = json_object_get(answer, "content");
    for (size_t i = 0; i < sizeof(actions) / sizeof(actions[0]); i++) {
        if (str_eq(action, actions[i])) {
            (void)execution_decide(
                e, pause, actions[i], json_is_object(content) ? content : NULL, "elicitation");
            return true;
        }
    }
    return false;
}

/* Whether this call can ask its client: by its answer, or on its stream. */
static bool can_ask(const struct mcp_call *call, const struct execution_view *view)
{
    return mcp_can_elicit(call) && (mcp_is_modern(call) || call->send) &&
           !str_eq(mcp_text(view->interaction, "kind", 16), "url");
}

/* A question that is on its way to the client. */
struct asked {
    struct execution *e;
    unsigned pause;
};

/* Somebody else has decided it, or nobody did in time. */
static bool is_moot(void *context)
{
    const struct asked *asked = context;
    return !execution_is_open(asked->e, asked->pause);
}

/* Asks through the client. 1: decided, wait on. 0: *ret is the result. */
static int ask(
    struct execution *e, struct mcp_call *call, struct execution_view *view, json_t **ret)
{
    json_t *answer = NULL;
    if (!can_ask(call, view)) {
        *ret = call->surface->has_wait ? running(call, view) : paused(view);
        return 0;
    }
    if (mcp_is_modern(call)) {
        json_t *request =
            json_pack("{s:s, s:o}", "method", "elicitation/create", "params", form(call, view));
        *ret = mcp_input_required(json_pack("{s:o}", INPUT_NAME, request),
            mcp_state_make(call, view->id, view->pause));
        return 0;
    }
    struct asked asked = {.e = e, .pause = view->pause};
    int r = mcp_ask(call, "elicitation/create", form(call, view), is_moot, &asked, &answer);
    if (r == -ECANCELED || r == -EALREADY)
        return r == -EALREADY ? 1 : r;
    bool is_decided = r == 0 && decide(e, view->pause, answer);
    json_decref(answer);
    if (is_decided)
        return 1;
    mcp_error_done(&call->error); /* the client failed at it: the model can still resume */
    *ret = paused(view);
    return 0;
}

int execution_answer(
    struct execution *e, struct mcp_call *call, uint64_t timeout_ms, json_t **ret)
{
    int r = 1;
    while (r == 1) {
        struct execution_view view;
        r = execution_wait(e, call, timeout_ms, &view);
        if (r == -ECANCELED)
            return r;
        if (view.state == EXECUTION_DONE)
            *ret = json_deep_copy(view.outcome);
        else if (view.state == EXECUTION_PAUSED)
            r = ask(e, call, &view, ret);
        else
            *ret = running(call, &view);
        execution_view_done(&view);
    }
    return r;
}

static json_t *unknown(const char *id)
{
    cleanup_free char *text = xasprintf("Error: there is no execution %s. It may have ended "
                                        "long ago, or the server was restarted. Run the code "
                                        "again with execute.",
        id);
    return mcp_text_result(text, strlen(text),
        json_pack("{s:s, s:s, s:s}", "status", "execution_not_found", "executionId", id,
            "recovery", "re_execute"),
        true);
}

/* The content of a decision: the text of a JSON object. Anything else counts as absent. */
static json_t *content_of(const json_t *arguments)
{
    const json_t *content = json_object_get(arguments, "content");
    json_t *value = NULL;
    struct mcp_error ignored = {0};
    if (json_is_string(content))
        (void)mcp_parse(
            json_string_value(content), json_string_length(content), &value, &ignored);
    mcp_error_done(&ignored);
    if (!json_is_object(value) || json_object_size(value) == 0) {
        json_decref(value);
        return NULL;
    }
    return value;
}

int execution_retry(struct mcp_call *call, struct execution **ret_execution, json_t **ret)
{
    char what[ID_MAX];
    unsigned round;
    unsigned pause;
    int r = mcp_state_take(call, what, &round);
    if (r <= 0)
        return r;
    *ret_execution = execution_find(mcp_executions(call->mcp), call->owner, what, &pause);
    if (*ret_execution)
        (void)decide(*ret_execution, pause, mcp_input(call, INPUT_NAME));
    else
        *ret = unknown(what);
    return 1;
}

int execution_resume(struct mcp_call *call, const json_t *arguments, json_t **ret)
{
    const char *id = mcp_text(arguments, "executionId", ID_MAX - 1);
    const char *action = mcp_text(arguments, "action", 16);
    struct execution *e = NULL;
    unsigned pause = 0;
    int r = execution_retry(call, &e, ret);
    if (r < 0 || *ret)
        return r < 0 ? r : 0;
    if (!e &&
        !(e = execution_find(mcp_executions(call->mcp), call->owner, id ? id : "", &pause))) {
        *ret = unknown(id ? id : "with this id");
        return 0;
    }
    if (r == 0 && pause) {
        json_t *content = content_of(arguments);
        (void)execution_decide(e, pause, action, content, "model");
        json_decref(content);
    } else if (r == 0 && str_eq(action, "cancel")) {
        execution_cancel(e);
    }
    r = execution_answer(e, call, EXECUTION_SOFT_MS, ret);
    execution_unref(e);
    return r;
}
