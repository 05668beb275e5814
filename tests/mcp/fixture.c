/* SPDX-License-Identifier: Apache-2.0 */

/* The server that the official conformance suite of MCP needs: tools, prompts and resources
 * with fixed names and texts. It links the core and the HTTP transport of the product; only
 * what it offers is its own. It has no engine and runs no code. `execute` raises pauses, as
 * approvals will, so that tests can answer them.
 *
 *   mcp-fixture PORT      serves http://127.0.0.1:PORT/mcp; 0 chooses a port and prints it
 *   mcp-fixture --stdio   serves on stdin and stdout */

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/log.h"
#include "base/str.h"
#include "http/server.h"
#include "mcp/execution/execution.h"
#include "mcp/stdio.h"
#include "service/service.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PNG                                                                                    \
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5"  \
    "ErkJggg=="
#define WAV "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAAAAA=="
#define NONE "{\"type\":\"object\",\"additionalProperties\":false}"
#define TEXT(text) "{\"content\":[{\"type\":\"text\",\"text\":\"" text "\"}]}"

enum { NAP_MS = 20, RETRY_MS = 50 };

static json_t *load(const char *text)
{
    return json_loads(text, JSON_DECODE_ANY, NULL);
}

static json_t *say(const char *text)
{
    return mcp_text_result(text, strlen(text), NULL, false);
}

/* --- tools with a constant answer */

static const struct {
    const char *name;
    const char *result;
} constants[] = {
    {"test_simple_text", TEXT("This is a simple text response for testing.")},
    {"test_image_content",
        "{\"content\":[{\"type\":\"image\",\"data\":\"" PNG "\",\"mimeType\":\"image/png\"}]}"},
    {"test_audio_content",
        "{\"content\":[{\"type\":\"audio\",\"data\":\"" WAV "\",\"mimeType\":\"audio/wav\"}]}"},
    {"test_embedded_resource",
        "{\"content\":[{\"type\":\"resource\",\"resource\":{\"uri\":\"test://embedded-"
        "resource\",\"mimeType\":\"text/plain\",\"text\":\"This is an embedded resource "
        "content.\"}}]}"},
    {"test_multiple_content_types",
        "{\"content\":[{\"type\":\"text\",\"text\":\"Multiple content types test:\"},{"
        "\"type\":\"image\",\"data\":\"" PNG "\",\"mimeType\":\"image/png\"},{\"type\":"
        "\"resource\",\"resource\":{\"uri\":\"test://mixed-content-resource\",\"mimeType\":"
        "\"application/json\",\"text\":\"{\\\"test\\\":\\\"data\\\",\\\"value\\\":123}\"}}]}"},
    {"test_error_handling",
        "{\"isError\":true,\"content\":[{\"type\":\"text\",\"text\":\"This tool intentionally "
        "returns an error for testing\"}]}"},
    {"json_schema_2020_12_tool", TEXT("ok")},
    {"test_header_tool", TEXT("ok")},
};

static int constant(struct mcp_call *call, const json_t *arguments, json_t **ret)
{
    for (size_t i = 0; i < sizeof(constants) / sizeof(constants[0]); i++) {
        if (str_eq(constants[i].name, call->tool->name))
            *ret = load(constants[i].result);
    }
    return *ret ? 0 : mcp_fail(&call->error, MCP_INTERNAL, "the fixture has no such constant");
}

/* --- messages before the answer */

static int progress(struct mcp_call *call, const json_t *arguments, json_t **ret)
{
    for (int i = 0; i <= 100; i += 50) {
        mcp_progress(call, i, 100, "step");
        if (mcp_wait(call, -1, NAP_MS) < 0)
            return -ECANCELED;
    }
    *ret = say("done");
    return 0;
}

static int logging(struct mcp_call *call, const json_t *arguments, json_t **ret)
{
    static const char *const texts[] = {
        "Tool execution started", "Tool processing data", "Tool execution completed"};
    for (size_t i = 0; i < 3; i++) {
        mcp_log(call, "info", NULL, texts[i]);
        if (mcp_wait(call, -1, NAP_MS) < 0)
            return -ECANCELED;
    }
    *ret = say("logged");
    return 0;
}

static int reconnection(struct mcp_call *call, const json_t *arguments, json_t **ret)
{
    mcp_hang_up(call, RETRY_MS);
    (void)mcp_wait(call, -1, 5 * NAP_MS);
    *ret = say("Reconnection test completed successfully");
    return 0;
}

static int sampling(struct mcp_call *call, const json_t *arguments, json_t **ret)
{
    json_t *answer = NULL;
    int r = mcp_need(call, "sampling");
    if (r == 0)
        r = mcp_ask(call, "sampling/createMessage",
            json_pack("{s:[{s:s, s:{s:s, s:O}}], s:i}", "messages", "role", "user", "content",
                "type", "text", "text", json_object_get(arguments, "prompt"), "maxTokens", 100),
            NULL, NULL, &answer);
    if (r < 0)
        return r;
    const char *text =
        json_string_value(json_object_get(json_object_get(answer, "content"), "text"));
    cleanup_free char *all = xasprintf("LLM response: %s", text ? text : "");
    *ret = say(all);
    json_decref(answer);
    return 0;
}

static const struct {
    const char *tool;
    const char *message;
    const char *schema;
} forms[] = {
    {"test_elicitation", NULL,
        "{\"type\":\"object\",\"properties\":{\"username\":{\"type\":\"string\",\"description\":"
        "\"User's response\"},\"email\":{\"type\":\"string\",\"description\":\"User's email "
        "address\"}},\"required\":[\"username\",\"email\"]}"},
    {"test_streaming_elicitation", "Please answer",
        "{\"type\":\"object\",\"properties\":{\"ok\":{\"type\":\"boolean\"}},\"required\":["
        "\"ok\"]}"},
    {"test_elicitation_sep1034_defaults", "Please review",
        "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\",\"default\":\"John "
        "Doe\"},\"age\":{\"type\":\"integer\",\"default\":30},\"score\":{\"type\":\"number\","
        "\"default\":95.5},\"status\":{\"type\":\"string\",\"enum\":[\"active\",\"inactive\","
        "\"pending\"],\"default\":\"active\"},\"verified\":{\"type\":\"boolean\",\"default\":"
        "true}},\"required\":[]}"},
    {"test_elicitation_sep1330_enums", "Please choose",
        "{\"type\":\"object\",\"properties\":{\"untitledSingle\":{\"type\":\"string\",\"enum\":["
        "\"option1\",\"option2\",\"option3\"]},\"titledSingle\":{\"type\":\"string\",\"oneOf\":"
        "[{\"const\":\"value1\",\"title\":\"First Option\"},{\"const\":\"value2\",\"title\":"
        "\"Second Option\"},{\"const\":\"value3\",\"title\":\"Third Option\"}]},\"legacyEnum\":"
        "{\"type\":\"string\",\"enum\":[\"opt1\",\"opt2\",\"opt3\"],\"enumNames\":[\"Option "
        "One\",\"Option Two\",\"Option Three\"]},\"untitledMulti\":{\"type\":\"array\","
        "\"items\":{\"type\":\"string\",\"enum\":[\"option1\",\"option2\",\"option3\"]}},"
        "\"titledMulti\":{\"type\":\"array\",\"items\":{\"anyOf\":[{\"const\":\"value1\","
        "\"title\":\"First Choice\"},{\"const\":\"value2\",\"title\":\"Second Choice\"},{"
        "\"const\":\"value3\",\"title\":\"Third Choice\"}]}}},\"required\":[]}"},
};

static int elicitation(struct mcp_call *call, const json_t *arguments, json_t **ret)
{
    json_t *answer = NULL;
    size_t i = 0;
    while (!str_eq(forms[i].tool, call->tool->name))
        i++;
    const char *message = forms[i].message;
    if (!message)
        message = json_string_value(json_object_get(arguments, "message"));
    int r = mcp_need(call, "elicitation");
    if (r == 0 && mcp_is_modern(call)) {
        const json_t *given = mcp_input(call, "answer");
        *ret = given ? say("answered")
                     : mcp_input_required(
                           json_pack("{s:{s:s, s:{s:s, s:s, s:o}}}", "answer", "method",
                               "elicitation/create", "params", "mode", "form", "message",
                               message, "requestedSchema", load(forms[i].schema)),
                           NULL);
        return 0;
    }
    if (r == 0)
        r = mcp_ask(call, "elicitation/create",
            json_pack("{s:s, s:o}", "message", message ? message : "?", "requestedSchema",
                load(forms[i].schema)),
            NULL, NULL, &answer);
    if (r < 0)
        return r;
    cleanup_free char *content =
        json_dumps(json_object_get(answer, "content"), JSON_COMPACT | JSON_ENCODE_ANY);
    cleanup_free char *all = xasprintf("Elicitation completed: action=%s, content=%s",
        json_string_value(json_object_get(answer, "action")), content ? content : "{}");
    *ret = say(all);
    json_decref(answer);
    return 0;
}

static int missing_capability(struct mcp_call *call, const json_t *arguments, json_t **ret)
{
    int r = mcp_need(call, "sampling");
    if (r == 0)
        *ret = say("the client can sample");
    return r;
}

static int trigger(struct mcp_call *call, const json_t *arguments, json_t **ret)
{
    bool is_tool = str_eq(call->tool->name, "test_trigger_tool_change");
    mcp_changed(call->mcp, call->surface, MCP_ALL_OWNERS, is_tool ? "tools" : "prompts", NULL);
    *ret = say("changed");
    return 0;
}

static int touch(struct mcp_call *call, const json_t *arguments, json_t **ret)
{
    mcp_changed(call->mcp, call->surface, MCP_ALL_OWNERS, "resources", NULL);
    mcp_changed(call->mcp, call->surface, call->owner, NULL, "test://watched-resource");
    *ret = say("changed");
    return 0;
}

/* --- input that is required: what to ask for in each round */

#define ASK(name, message, property, type)                                                     \
    "\"" name                                                                                  \
    "\":{\"method\":\"elicitation/create\",\"params\":{\"mode\":\"form\",\"message\":"         \
    "\"" message "\",\"requestedSchema\":{\"type\":\"object\",\"properties\":{\"" property     \
    "\":{\"type\":\"" type "\"}},\"required\":[\"" property "\"]}}}"
#define SAMPLE(name, text)                                                                     \
    "\"" name "\":{\"method\":\"sampling/createMessage\",\"params\":{\"messages\":[{\"role\":" \
    "\"user\",\"content\":{\"type\":\"text\",\"text\":\"" text "\"}}],\"maxTokens\":100}}"
#define ROOTS(name) "\"" name "\":{\"method\":\"roots/list\",\"params\":{}}"

static const struct {
    const char *name;
    const char *rounds[2];
    bool has_state;
} inputs[] = {
    {"test_input_required_result_elicitation",
        {"{" ASK("user_name", "What is your name?", "name", "string") "}"}, false},
    {"test_input_required_result_sampling",
        {"{" SAMPLE("capital_question", "What is the capital of France?") "}"}, false},
    {"test_input_required_result_list_roots", {"{" ROOTS("client_roots") "}"}, false},
    {"test_input_required_result_request_state",
        {"{" ASK("confirm", "Please confirm", "ok", "boolean") "}"}, true},
    {"test_input_required_result_tampered_state",
        {"{" ASK("confirm", "Please confirm", "ok", "boolean") "}"}, true},
    {"test_input_required_result_multiple_inputs",
        {"{" ASK("user_name", "What is your name?", "name", "string") "," SAMPLE(
            "greeting", "Generate a greeting") "," ROOTS("client_roots") "}"},
        true},
    {"test_input_required_result_multi_round",
        {"{" ASK("step1", "Step 1: What is your name?", "name", "string") "}",
            "{" ASK("step2", "Step 2: What is your favorite color?", "color", "string") "}"},
        true},
    {"test_input_required_result_capabilities",
        {"{" ASK("user_name", "What is your name?", "name", "string") "," SAMPLE(
            "greeting", "Generate a greeting") "}"},
        false},
    {"test_input_required_result_prompt",
        {"{" ASK(
            "user_context", "What context should the prompt use?", "context", "string") "}"},
        false},
};

/* Leaves out what the client did not declare. */
static json_t *allowed(struct mcp_call *call, json_t *requests)
{
    static const struct {
        const char *method;
        const char *capability;
    } kinds[] = {{"elicitation/create", "elicitation"}, {"sampling/createMessage", "sampling"},
        {"roots/list", "roots"}};
    const char *name;
    json_t *request;
    void *next;
    json_object_foreach_safe(requests, next, name, request)
    {
        const char *method = json_string_value(json_object_get(request, "method"));
        for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
            if (str_eq(kinds[i].method, method) && !mcp_can(call, kinds[i].capability)) {
                (void)json_object_del(requests, name);
                break;
            }
        }
    }
    return requests;
}

static bool has_all(struct mcp_call *call, json_t *requests)
{
    const char *name;
    json_t *request;
    json_object_foreach(requests, name, request)
    {
        if (!mcp_input(call, name))
            return false;
    }
    return true;
}

/* 1: everything is there. 0: *ret asks for it. */
static int need_inputs(struct mcp_call *call, const char *name, json_t **ret)
{
    char what[ID_MAX];
    unsigned round = 0;
    size_t i = 0;
    while (!str_eq(inputs[i].name, name))
        i++;
    int r = mcp_state_take(call, what, &round);
    if (r < 0)
        return r;
    bool is_back = r == 1 || !inputs[i].has_state;
    json_t *requests = allowed(call, load(inputs[i].rounds[round]));
    bool is_answered = is_back && json_object_get(call->message.params, "inputResponses") &&
                       has_all(call, requests);
    if (is_answered && round == 0 && inputs[i].rounds[1]) {
        json_decref(requests);
        requests = load(inputs[i].rounds[++round]);
        is_answered = false;
    }
    if (is_answered)
        json_decref(requests);
    else
        *ret = mcp_input_required(
            requests, inputs[i].has_state ? mcp_state_make(call, "round", round) : NULL);
    return is_answered;
}

static int input_required(struct mcp_call *call, const json_t *arguments, json_t **ret)
{
    int r = need_inputs(call, call->tool->name, ret);
    if (r == 1)
        *ret = say(str_eq(call->tool->name, "test_input_required_result_request_state")
                       ? "state-ok: thank you"
                       : "thank you");
    return r < 0 ? r : 0;
}

/* --- executions that pause: {"code": "pause"} twice, and the decisions are the result */

struct pauses {
    int count; /* still to come */
    struct execution *e;
    json_t *decisions;
    int fds[2];
};

static void decided(void *context, const char *action, const json_t *content)
{
    struct pauses *p = context;
    json_t *row = json_pack("{s:s}", "action", action);
    if (content)
        (void)json_object_set(row, "content", (json_t *)content);
    (void)json_array_append_new(p->decisions, row);
    if (write(p->fds[1], "x", 1) < 0)
        abort();
}

static void pause_and_finish(struct execution *e, void *context)
{
    struct pauses *p = context;
    char byte;
    while (p->count-- > 0) {
        struct pollfd fds[] = {{p->fds[0], POLLIN, 0}, {execution_cancel_fd(e), POLLIN, 0}};
        (void)execution_pause(e,
            json_pack("{s:s, s:s, s:s, s:{s:s}, s:o}", "kind", "form", "message",
                "Delete everything?", "address", "fixture.delete", "args", "what", "all",
                "requestedSchema",
                load("{\"type\":\"object\",\"properties\":{\"note\":{\"type\":\"string\"}}}")),
            decided, p);
        (void)poll(fds, 2, -1);
        if (fds[1].revents)
            break;
        if (read(p->fds[0], &byte, 1) < 0)
            abort();
    }
    /* Pauses that are still open are decided by execution_finish(), before the result counts.
     */
    cleanup_free char *text = json_dumps(p->decisions, JSON_COMPACT);
    execution_finish(e, mcp_text_result(text, strlen(text),
                            json_pack("{s:s, s:O, s:[]}", "status", "completed", "result",
                                p->decisions, "logs"),
                            false));
}

static void free_pauses(void *context)
{
    struct pauses *p = context;
    (void)close(p->fds[0]);
    (void)close(p->fds[1]);
    json_decref(p->decisions);
    free(p);
}

static int execute(struct mcp_call *call, const json_t *arguments, json_t **ret)
{
    struct execution *e = NULL;
    struct err err = {0};
    int r = execution_retry(call, &e, ret);
    if (r < 0 || *ret)
        return r < 0 ? r : 0;
    if (r == 0) {
        struct pauses *p = xcalloc(1, sizeof(*p));
        p->count = (int)json_integer_value(json_object_get(arguments, "pauses"));
        p->decisions = json_array();
        if (pipe(p->fds) < 0)
            abort();
        if (execution_start(mcp_executions(call->mcp), call->owner, 0, pause_and_finish,
                free_pauses, p, &e, &err) < 0) {
            free_pauses(p);
            *ret = mcp_tool_error(&err);
            return 0;
        }
    }
    r = execution_answer(e, call, EXECUTION_SOFT_MS, ret);
    execution_unref(e);
    return r;
}

#define SCHEMA_2020                                                                               \
    "{\"$schema\":\"https://json-schema.org/draft/2020-12/schema\",\"type\":\"object\","          \
    "\"$defs\":{\"address\":{\"$anchor\":\"addressDef\",\"type\":\"object\",\"properties\":{"     \
    "\"street\":{\"type\":\"string\"},\"city\":{\"type\":\"string\"}}}},\"properties\":{"         \
    "\"name\":{\"type\":\"string\"},\"address\":{\"$ref\":\"#/$defs/address\"},"                  \
    "\"contactMethod\":{\"type\":\"string\",\"enum\":[\"phone\",\"email\"]},\"phone\":{\"type\":" \
    "\"string\"},\"email\":{\"type\":\"string\"}},\"allOf\":[{\"anyOf\":[{\"required\":["         \
    "\"phone\"]},{\"required\":[\"email\"]}]}],\"if\":{\"properties\":{\"contactMethod\":{"       \
    "\"const\":\"phone\"}},\"required\":[\"contactMethod\"]},\"then\":{\"required\":["            \
    "\"phone\"]},\"else\":{\"required\":[\"email\"]},\"additionalProperties\":false}"

#define TOOL(name_, streams_, call_)                                                           \
    {                                                                                          \
        .name = name_, .description = "Fixture.", .input_schema = NONE, .streams = streams_,   \
        .call = call_                                                                          \
    }

static const struct mcp_tool tools[] = {
    TOOL("test_simple_text", false, constant),
    TOOL("test_image_content", false, constant),
    TOOL("test_audio_content", false, constant),
    TOOL("test_embedded_resource", false, constant),
    TOOL("test_multiple_content_types", false, constant),
    TOOL("test_error_handling", false, constant),
    TOOL("test_tool_with_progress", true, progress),
    TOOL("test_tool_with_logging", true, logging),
    TOOL("test_logging_tool", true, logging),
    TOOL("test_reconnection", true, reconnection),
    {.name = "test_sampling",
        .description = "Fixture.",
        .input_schema =
            "{\"type\":\"object\",\"properties\":{\"prompt\":{\"type\":\"string\"}},"
            "\"required\":[\"prompt\"],\"additionalProperties\":false}",
        .streams = true,
        .call = sampling},
    {.name = "test_elicitation",
        .description = "Fixture.",
        .input_schema =
            "{\"type\":\"object\",\"properties\":{\"message\":{\"type\":\"string\"}},"
            "\"required\":[\"message\"],\"additionalProperties\":false}",
        .streams = true,
        .call = elicitation},
    TOOL("test_streaming_elicitation", true, elicitation),
    TOOL("test_elicitation_sep1034_defaults", true, elicitation),
    TOOL("test_elicitation_sep1330_enums", true, elicitation),
    TOOL("test_missing_capability", false, missing_capability),
    TOOL("test_trigger_tool_change", false, trigger),
    TOOL("test_trigger_prompt_change", false, trigger),
    TOOL("test_trigger_resource_change", false, touch),
    TOOL("test_input_required_result_elicitation", false, input_required),
    TOOL("test_input_required_result_sampling", false, input_required),
    TOOL("test_input_required_result_list_roots", false, input_required),
    TOOL("test_input_required_result_request_state", false, input_required),
    TOOL("test_input_required_result_tampered_state", false, input_required),
    TOOL("test_input_required_result_multiple_inputs", false, input_required),
    TOOL("test_input_required_result_multi_round", false, input_required),
    TOOL("test_input_required_result_capabilities", false, input_required),
    {.name = "json_schema_2020_12_tool",
        .description = "Fixture.",
        .input_schema = SCHEMA_2020,
        .call = constant},
    {.name = "test_header_tool",
        .description = "Fixture.",
        .input_schema = "{\"type\":\"object\",\"properties\":{\"region\":{\"type\":\"string\","
                        "\"x-mcp-header\":\"Region\"}},\"additionalProperties\":false}",
        .call = constant},
    {.name = "execute",
        .description = "Fixture: pauses so often, then returns the decisions.",
        .input_schema =
            "{\"type\":\"object\",\"properties\":{\"pauses\":{\"type\":\"integer\"}},"
            "\"additionalProperties\":false}",
        .call = execute},
    {.name = "resume",
        .description = "Fixture.",
        .input_schema =
            "{\"type\":\"object\",\"properties\":{\"executionId\":{\"type\":\"string\"},"
            "\"action\":{\"type\":\"string\"},\"content\":{\"type\":\"string\"}},\"required\":["
            "\"executionId\",\"action\"],\"additionalProperties\":false}",
        .call = execution_resume},
};

/* --- prompts and resources */

static json_t *message(json_t *content)
{
    return json_pack("{s:s, s:o}", "role", "user", "content", content);
}

static json_t *text_content(const char *text)
{
    return mcp_content_text(text, strlen(text));
}

static int simple_prompt(struct mcp_call *call, const json_t *arguments, json_t **ret)
{
    *ret = json_pack(
        "{s:[o]}", "messages", message(text_content("This is a simple prompt for testing.")));
    return 0;
}

static const char *argument(const json_t *arguments, const char *name)
{
    const char *text = mcp_text(arguments, name, 1000);
    return text ? text : "";
}

static int prompt_with_arguments(struct mcp_call *call, const json_t *arguments, json_t **ret)
{
    cleanup_free char *text = xasprintf("Prompt with arguments: arg1='%s', arg2='%s'",
        argument(arguments, "arg1"), argument(arguments, "arg2"));
    *ret = json_pack("{s:[o]}", "messages", message(text_content(text)));
    return 0;
}

static int prompt_with_resource(struct mcp_call *call, const json_t *arguments, json_t **ret)
{
    json_t *resource = json_pack("{s:s, s:{s:s, s:s, s:s}}", "type", "resource", "resource",
        "uri", argument(arguments, "resourceUri"), "mimeType", "text/plain", "text",
        "Embedded resource content for testing.");
    *ret = json_pack("{s:[o, o]}", "messages", message(resource),
        message(text_content("Please process the embedded resource above.")));
    return 0;
}

static int prompt_with_image(struct mcp_call *call, const json_t *arguments, json_t **ret)
{
    json_t *image =
        json_pack("{s:s, s:s, s:s}", "type", "image", "data", PNG, "mimeType", "image/png");
    *ret = json_pack("{s:[o, o]}", "messages", message(image),
        message(text_content("Please analyze the image above.")));
    return 0;
}

static int prompt_with_input(struct mcp_call *call, const json_t *arguments, json_t **ret)
{
    int r = need_inputs(call, "test_input_required_result_prompt", ret);
    return r == 1 ? simple_prompt(call, arguments, ret) : r;
}

static const struct mcp_prompt prompts[] = {
    {"test_simple_prompt", NULL, "Fixture.", NULL, simple_prompt},
    {"test_prompt_with_arguments", NULL, "Fixture.",
        "[{\"name\":\"arg1\",\"description\":\"First\",\"required\":true},{\"name\":\"arg2\","
        "\"description\":\"Second\",\"required\":true}]",
        prompt_with_arguments},
    {"test_prompt_with_embedded_resource", NULL, "Fixture.",
        "[{\"name\":\"resourceUri\",\"description\":\"The resource\",\"required\":true}]",
        prompt_with_resource},
    {"test_prompt_with_image", NULL, "Fixture.", NULL, prompt_with_image},
    {"test_input_required_result_prompt", NULL, "Fixture.", NULL, prompt_with_input},
};

static const char resource_list[] =
    "[{\"uri\":\"test://static-text\",\"name\":\"Static text\",\"mimeType\":\"text/plain\"},"
    "{\"uri\":\"test://static-binary\",\"name\":\"Static binary\",\"mimeType\":\"image/png\"},"
    "{\"uri\":\"test://watched-resource\",\"name\":\"Watched\",\"mimeType\":\"text/plain\"}]";

static int list_resources(
    struct mcp_call *call, size_t first, size_t most, json_t **ret, bool *ret_more)
{
    *ret = first ? json_array() : load(resource_list);
    return 0;
}

static int read_resource(struct mcp_call *call, const char *uri, json_t **ret)
{
    char id[64];
    int end = 0;
    if (str_eq(uri, "test://static-text") || str_eq(uri, "test://watched-resource")) {
        *ret = json_pack("[{s:s, s:s, s:s}]", "uri", uri, "mimeType", "text/plain", "text",
            "This is the content of the static text resource.");
    } else if (str_eq(uri, "test://static-binary")) {
        *ret = json_pack("[{s:s, s:s, s:s}]", "uri", uri, "mimeType", "image/png", "blob", PNG);
    } else if (sscanf(uri, "test://template/%63[^/]/data%n", id, &end) == 1 &&
               (size_t)end == strlen(uri)) {
        cleanup_free char *text = xasprintf(
            "{\"id\":\"%s\",\"templateTest\":true,\"data\":\"Data for ID: %s\"}", id, id);
        *ret = json_pack(
            "[{s:s, s:s, s:s}]", "uri", uri, "mimeType", "application/json", "text", text);
    } else {
        return -ENOENT;
    }
    return 0;
}

static int complete(
    struct mcp_call *call, const char *ref, const char *name, const char *value, json_t **ret)
{
    static const char *const words[] = {"paris", "park", "party"};
    *ret = json_array();
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (str_has_prefix(words[i], value))
            (void)json_array_append_new(*ret, json_string(words[i]));
    }
    return 0;
}

static const struct mcp_surface surface = {.name = "mcp-fixture",
    .tools = tools,
    .tool_count = sizeof(tools) / sizeof(tools[0]),
    .prompts = prompts,
    .prompt_count = sizeof(prompts) / sizeof(prompts[0]),
    .list_resources = list_resources,
    .templates = "[{\"uriTemplate\":\"test://template/{id}/data\",\"name\":\"Template\","
                 "\"mimeType\":\"application/json\"}]",
    .read_resource = read_resource,
    .tools_change = true,
    .prompts_change = true,
    .resources_change = true,
    .has_logging = true,
    .complete = complete};

const struct mcp_surface *mcp_surface_at(const char *path, size_t len)
{
    return &surface;
}

/* --- the program */

static int listen_on(const char *port)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
        .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
        .sin_port = htons((uint16_t)strtoul(port, NULL, 10))};
    socklen_t len = sizeof(address);
    int one = 1;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (bind(fd, (struct sockaddr *)&address, len) < 0 || listen(fd, 64) < 0 ||
        getsockname(fd, (struct sockaddr *)&address, &len) < 0) {
        perror("mcp-fixture");
        exit(1);
    }
    (void)printf("%u\n", ntohs(address.sin_port));
    (void)fflush(stdout);
    return fd;
}

static void open_state(struct state *state)
{
    struct strv problems = {0};
    struct err err = {0};
    if (config_load_text(&state->config, "", 0, &problems) < 0)
        exit(1);
    state->config.history = HISTORY_MEMORY;
    state->config.warm = false;
    if (service_open(state, &err) < 0) {
        (void)fprintf(stderr, "mcp-fixture: %s\n", err.message);
        exit(1);
    }
    state->mcp = mcp_new(state);
}

int main(int argc, char **argv)
{
    static struct state state;
    struct server *server = NULL;
    struct err err = {0};
    (void)signal(SIGPIPE, SIG_IGN);
    open_state(&state);
    (void)log_set_level("error");
    if (argc != 2)
        return 2;
    if (str_eq(argv[1], "--stdio"))
        return mcp_stdio_serve(state.mcp, &surface);
    int fd = listen_on(argv[1]);
    if (server_start(&server, &state, &fd, 1, &err) < 0)
        return 1;
    for (;;)
        (void)pause();
}
