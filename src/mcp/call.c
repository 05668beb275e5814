/* SPDX-License-Identifier: Apache-2.0 */

/* What handlers do with their call (mcp.h): messages before the answer, questions to the
 * client, and results. */

#include "mcp/internal.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "base/str.h"
#include "base/utf8.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void mcp_send(struct mcp_call *call, json_t *message)
{
    if (call->send)
        call->send(call->context, message);
    json_decref(message);
}

void mcp_hang_up(struct mcp_call *call, unsigned retry_ms)
{
    if (call->hang_up)
        call->hang_up(call->context, retry_ms);
}

static json_t *progress_token(const struct mcp_call *call)
{
    json_t *token = json_object_get(call->message.meta, "progressToken");
    return json_is_string(token) || json_is_integer(token) ? token : NULL;
}

bool mcp_wants_progress(const struct mcp_call *call)
{
    return progress_token(call);
}

void mcp_progress(struct mcp_call *call, double progress, double total, const char *message)
{
    json_t *token = progress_token(call);
    if (!token || progress < call->progress)
        return;
    json_t *params = json_pack("{s:O, s:f}", "progressToken", token, "progress", progress);
    call->progress = progress;
    if (total > 0)
        (void)json_object_set_new(params, "total", json_real(total));
    if (message)
        (void)json_object_set_new(params, "message", json_string(message));
    mcp_send(call, mcp_notification("notifications/progress", params));
}

void mcp_log(struct mcp_call *call, const char *level, const char *logger, const char *text)
{
    const json_t *wanted = json_object_get(call->message.meta, MCP_META "logLevel");
    if (mcp_is_modern(call) ? !wanted : !call->peer)
        return;
    json_t *params = json_pack("{s:s, s:s}", "level", level, "data", text);
    if (logger)
        (void)json_object_set_new(params, "logger", json_string(logger));
    mcp_send(call, mcp_notification("notifications/message", params));
}

bool mcp_can(const struct mcp_call *call, const char *capability)
{
    return json_is_object(json_object_get(call->capabilities, capability));
}

/* An empty object means forms. Elicitation came with 2025-06-18. */
bool mcp_can_elicit(const struct mcp_call *call)
{
    const json_t *elicitation = json_object_get(call->capabilities, "elicitation");
    if (call->version < MCP_2025_06_18 || !json_is_object(elicitation))
        return false;
    return json_object_size(elicitation) == 0 || json_object_get(elicitation, "form");
}

int mcp_need(struct mcp_call *call, const char *capability)
{
    if (mcp_can(call, capability))
        return 0;
    (void)mcp_fail_http(&call->error, mcp_is_modern(call) ? 400 : 0, MCP_CAPABILITY,
        "this call needs a client that declares %s", capability);
    call->error.data = json_pack("{s:{s:{}}}", "requiredCapabilities", capability);
    return -EINVAL;
}

int mcp_wait(const struct mcp_call *call, int fd, int timeout_ms)
{
    struct pollfd fds[] = {{call->cancel_fd, POLLIN, 0}, {fd, POLLIN, 0}};
    int r = poll(fds, 2, timeout_ms);
    if (r > 0 && fds[0].revents)
        return -ECANCELED;
    return r > 0 && fds[1].revents;
}

int mcp_ask(struct mcp_call *call, const char *method, json_t *params, mcp_moot *is_moot,
    void *context, json_t **ret)
{
    struct mcp *mcp = call->mcp;
    char id[ID_MAX];
    if (!call->peer || !call->send) {
        json_decref(params);
        return mcp_fail(&call->error, MCP_INTERNAL, "this client cannot be asked");
    }
    (void)pthread_mutex_lock(&mcp->lock);
    (void)snprintf(id, sizeof(id), "hermes-%llu", (unsigned long long)++mcp->asked);
    (void)pthread_mutex_unlock(&mcp->lock);
    json_t *message = json_pack(
        "{s:s, s:s, s:s, s:o}", "jsonrpc", "2.0", "id", id, "method", method, "params", params);
    /* The peer takes note of the question before the client can answer it. */
    struct mcp_question question;
    int r = mcp_peer_ask(call->peer, &question, id);
    if (r == 0) {
        mcp_send(call, message);
        r = mcp_peer_hear(
            call->peer, &question, call->cancel_fd, is_moot, context, ret, &call->error);
        if (r == -EALREADY)
            mcp_send(call, mcp_notification("notifications/cancelled",
                               json_pack("{s:s, s:s}", "requestId", id, "reason",
                                   "it was decided meanwhile")));
    } else {
        json_decref(message);
        r = mcp_fail(
            &call->error, MCP_INTERNAL, "the server has no descriptor left; try again later");
    }
    return r;
}

/* Text of programs need not be UTF-8. */
json_t *mcp_content_text(const char *text, size_t len)
{
    json_t *value = json_stringn(text, len);
    if (!value) {
        cleanup_free char *repaired = utf8_repair(text, len, &len);
        value = json_stringn(repaired, len);
    }
    return json_pack("{s:s, s:o}", "type", "text", "text", value ? value : json_string(""));
}

json_t *mcp_text_result(const char *text, size_t len, json_t *structured, bool is_error)
{
    json_t *result = json_pack("{s:[o]}", "content", mcp_content_text(text, len));
    if (structured)
        (void)json_object_set_new(result, "structuredContent", structured);
    if (is_error)
        (void)json_object_set_new(result, "isError", json_true());
    return result;
}

json_t *mcp_tool_error(const struct err *err)
{
    cleanup_free char *text = xasprintf("Error: %s%s%s", err->field, err->field[0] ? ": " : "",
        err->message[0] ? err->message : "Hermes failed");
    return mcp_text_result(text, strlen(text), NULL, true);
}

json_t *mcp_input_required(json_t *requests, char *state)
{
    json_t *result = json_pack("{s:s}", "resultType", "input_required");
    if (requests)
        (void)json_object_set_new(result, "inputRequests", requests);
    if (state)
        (void)json_object_set_new(result, "requestState", json_string(state));
    free(state);
    return result;
}

const json_t *mcp_input(const struct mcp_call *call, const char *name)
{
    const json_t *responses = json_object_get(call->message.params, "inputResponses");
    const json_t *value = json_object_get(responses, name);
    return json_is_object(value) ? value : NULL;
}
