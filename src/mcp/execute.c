/* SPDX-License-Identifier: Apache-2.0 */

/* See execute.h. The code becomes the body of an async function in the session's interpreter
 * (runtimes/javascript/execute.js, runtimes/python/kernel_execute.py). Its value comes back as
 * a display of a type of our own; its tool calls come as frames with the one tool `call`, whose
 * input names the address. */

#include "mcp/execute.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/log.h"
#include "base/str.h"
#include "base/utf8.h"
#include "mcp/catalog.h"
#include "mcp/execution/execution.h"
#include "mcp/ready.h"
#include "session/session.h"
#include "state/state.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    WALL_MS = 300000,    /* of one execution, waiting for tools included */
    TOOL_CALLS = 1000,   /* of one execution */
    TEXT_MAX = 30000,    /* bytes of the value that the model sees */
    LOGS_MAX = 64 << 10, /* bytes of log lines that are kept */
    TOOL_PATH_MAX = 256,
};

#define VALUE_TYPE "application/vnd.hermes.value+json"

static const char call_tool[] =
    "[{\"name\":\"call\",\"description\":\"Calls a tool of the catalog.\",\"input_schema\":"
    "{\"type\":\"object\",\"properties\":{\"path\":{},\"input\":{}}}}]";

/* How a language runs the code: a printf format for the JSON string. */
static const struct language {
    const char *name;
    const char *runtime;
    const char *format;
} languages[] = {
    {"javascript", "javascript", "await require('/usr/lib/hermes/execute.js')(%s, false)"},
    {"typescript", "javascript", "await require('/usr/lib/hermes/execute.js')(%s, true)"},
    {"python", "python",
        "__import__('runpy').run_path('/usr/lib/hermes/kernel_execute.py')['run'](%s)"},
};

struct work {
    struct mcp *mcp;
    const struct runtime *runtime;
    char *code;
    struct session *session;
    struct execution *e;
    json_t *value; /* {"value": ...}, or NULL */
    json_t *shown; /* other displays: content blocks */
    struct buf logs;
    bool is_line_open[2];
};

static void work_free(void *context)
{
    struct work *w = context;
    free(w->code);
    json_decref(w->value);
    json_decref(w->shown);
    buf_done(&w->logs);
    free(w);
}

/* Lines of both streams, in the order in which they came: "[log] ...", "[error] ...". */
static void on_output(void *context, enum run_stream stream, const char *data, size_t len)
{
    struct work *w = context;
    while (len) {
        const char *end = memchr(data, '\n', len);
        size_t size = end ? (size_t)(end - data) + 1 : len;
        if (!w->is_line_open[stream])
            (void)buf_append_str(&w->logs, stream == STREAM_STDOUT ? "[log] " : "[error] ");
        (void)buf_append_some(&w->logs, data, size);
        w->is_line_open[stream] = !end;
        data += size;
        len -= size;
    }
}

/* An image becomes image content; everything else its text. */
static void show(struct work *w, const json_t *bundle)
{
    static const char *const images[] = {"image/png", "image/jpeg", "image/webp", "image/gif"};
    for (size_t i = 0; i < sizeof(images) / sizeof(images[0]); i++) {
        const json_t *data = json_object_get(bundle, images[i]);
        if (json_is_string(data)) {
            (void)json_array_append_new(w->shown, json_pack("{s:s, s:O, s:s}", "type", "image",
                                                      "data", data, "mimeType", images[i]));
            return;
        }
    }
    const json_t *text = json_object_get(bundle, "text/plain");
    if (json_is_string(text))
        (void)json_array_append_new(
            w->shown, mcp_content_text(json_string_value(text), json_string_length(text)));
}

static void answer_tool(struct work *w, const json_t *id, json_t *value)
{
    struct err err = {0};
    json_t *answer = json_pack("{s:O, s:o}", "id", id, "output", value);
    size_t weight = 4 * json_dumpb(answer, NULL, 0, JSON_COMPACT);
    if (session_answer_tool(w->session, answer, weight, &err) < 0)
        log_event(
            LOG_DEBUG, "a tool's answer was not taken", "reason", err.message, (char *)NULL);
    json_decref(answer);
}

/* The code called a tool. The session has asked before, if a rule of the operator wants it
 * (session/exec/tools.c). */
static void on_tool(struct work *w, const json_t *frame)
{
    const json_t *input = json_object_get(frame, "input");
    const char *path = mcp_text(input, "path", TOOL_PATH_MAX);
    answer_tool(w, json_object_get(frame, "id"),
        catalog_call(path ? path : "", json_object_get(input, "input")));
}

static void on_event(void *context, const char *name, const json_t *value)
{
    struct work *w = context;
    if (str_eq(name, "tool_call"))
        on_tool(w, value);
    else if (str_eq(name, "display") && json_object_get(value, VALUE_TYPE)) {
        json_decref(w->value);
        w->value = json_incref(json_object_get(value, VALUE_TYPE));
    } else if (str_eq(name, "display"))
        show(w, value);
}

static json_t *logs_json(const struct work *w)
{
    json_t *list = json_array();
    cleanup_free char *text = utf8_repair(w->logs.data ? w->logs.data : "", w->logs.len, NULL);
    char *rest = text;
    char *line;
    while ((line = strsep(&rest, "\n"))) {
        if (*line || (rest && *rest))
            (void)json_array_append_new(list, json_string(line));
    }
    return list;
}

static void add_logs(struct buf *to, const struct work *w)
{
    if (w->logs.len) {
        (void)buf_append_str(to, "\n\nLogs:\n");
        (void)buf_append(to, w->logs.data, w->logs.len);
    }
}

/* The value as the model sees it. */
static void add_value(struct buf *to, const json_t *value)
{
    cleanup_free char *dumped = NULL;
    const char *text = json_string_value(value);
    size_t len = json_string_length(value);
    if (!text) {
        dumped = value && !json_is_null(value)
                     ? json_dumps(value, JSON_INDENT(2) | JSON_ENCODE_ANY)
                     : xstrdup("(no result)");
        text = dumped ? dumped : "";
        len = strlen(text);
    }
    size_t shown = len <= TEXT_MAX ? len : utf8_floor(text, TEXT_MAX);
    (void)buf_append(to, text, shown);
    if (shown < len)
        (void)buf_printf(to, "\n\n[cut: %zu of %zu bytes are shown; return less]", shown, len);
}

static json_t *outcome(const struct work *w, const char *problem)
{
    cleanup_buf struct buf text;
    buf_init(&text, (size_t)4 * (TEXT_MAX + LOGS_MAX));
    json_t *value = json_object_get(w->value, "value");
    json_t *structured;
    if (problem) {
        (void)buf_printf(&text, "Error: %s", problem);
        structured = json_pack("{s:s, s:o, s:o}", "status", "error", "error",
            json_string(problem), "logs", logs_json(w));
    } else {
        add_value(&text, value);
        structured = json_pack("{s:s, s:o, s:o}", "status", "completed", "result",
            value ? json_incref(value) : json_null(), "logs", logs_json(w));
    }
    add_logs(&text, w);
    json_t *result = mcp_text_result(text.data ? text.data : "", text.len, structured, problem);
    json_t *content = json_object_get(result, "content");
    for (size_t i = json_array_size(w->shown); i-- > 0;)
        (void)json_array_insert(content, 0, json_array_get(w->shown, i));
    return result;
}

/* What went wrong in the code, in one text; NULL: nothing. The caller frees it. */
static char *problem_of(const struct exec_result *result)
{
    const char *name = json_string_value(json_object_get(result->error, "name"));
    const char *value = json_string_value(json_object_get(result->error, "value"));
    if (result->status == RUN_OK && !result->error)
        return NULL;
    if (name && value)
        return xasprintf("%s: %s", name, value);
    size_t len;
    cleanup_free char *text = utf8_repair(result->message, strlen(result->message), &len);
    return xasprintf("%s%s%s", run_status_name(result->status), *text ? ": " : "", text);
}

static void finish_with(struct work *w, const struct err *err)
{
    cleanup_free char *problem = xasprintf("%s", err->message);
    execution_finish(w->e, outcome(w, problem));
}

static int start(struct work *w, struct err *err)
{
    return ready_take(
        w->mcp, w->runtime, execution_owner(w->e), execution_cancel_fd(w->e), &w->session, err);
}

static void run(struct execution *e, void *context)
{
    struct work *w = context;
    struct state *state = mcp_state(w->mcp);
    uint64_t most = state->config.maxima.wall_ms;
    struct exec_spec spec = {.code = w->code,
        .code_len = strlen(w->code),
        .timeout_ms = most && most < WALL_MS ? most : WALL_MS,
        .tools = json_loads(call_tool, 0, NULL),
        .is_catalog = true,
        .max_tool_calls = TOOL_CALLS,
        .tool_timeout_ms = WALL_MS};
    struct exec_watch watch = {.context = w,
        .output = on_output,
        .event = on_event,
        .cancel_fd = execution_cancel_fd(e)};
    struct exec_result result;
    struct err err = {0};
    w->e = e;
    int r = start(w, &err);
    if (r == 0)
        r = session_begin(w->session, &spec, watch.cancel_fd, &err);
    if (r == 0) {
        execution_attend(e, session_id(w->session));
        r = session_exec(w->session, &spec, &watch, &result, &err);
        cleanup_free char *problem = r < 0 ? xstrdup(err.message) : problem_of(&result);
        execution_finish(e, outcome(w, problem));
        exec_result_done(&result);
    } else {
        finish_with(w, &err);
    }
    json_decref(spec.tools);
    if (w->session) {
        session_delete(w->session);
        session_unref(w->session);
    }
    ready_refill(w->mcp, w->runtime, execution_owner(e));
}

/* Blanks at both ends do not count; code of blanks only is refused. */
static char *wrap(const json_t *code, const char *format)
{
    cleanup_free char *text = json_dumps(code, JSON_ENCODE_ANY | JSON_ENSURE_ASCII);
    /* The format is one of ours, with one %s. */
    const char *at = strstr(format, "%s");
    return text ? xasprintf("%.*s%s%s", (int)(at - format), format, text, at + 2) : NULL;
}

static bool is_blank(const char *text)
{
    return text[strspn(text, " \t\r\n")] == '\0';
}

static json_t *refusal(const char *fmt, const char *what)
{
    cleanup_free char *text = xasprintf("%s%s", fmt, what);
    return mcp_text_result(text, strlen(text),
        json_pack("{s:s, s:s, s:[]}", "status", "error", "error", text, "logs"), true);
}

/* The first one, if none is named. The schema has refused every other name. */
static const struct language *find_language(const char *name)
{
    for (size_t i = 0; name && i < sizeof(languages) / sizeof(languages[0]); i++)
        if (str_eq(languages[i].name, name))
            return &languages[i];
    return &languages[0];
}

/* Begins an execution; *ret instead of one when that is refused. */
static struct execution *begin(struct mcp_call *call, const json_t *arguments, json_t **ret)
{
    const struct language *language = find_language(mcp_text(arguments, "language", 32));
    const json_t *code = json_object_get(arguments, "code");
    struct work *w = xcalloc(1, sizeof(*w));
    struct execution *e = NULL;
    struct err err = {0};
    w->mcp = call->mcp;
    w->shown = json_array();
    buf_init(&w->logs, LOGS_MAX);
    w->runtime = runtime_find(&mcp_state(call->mcp)->runtimes, language->runtime);
    w->code = wrap(code, language->format);
    if (is_blank(json_string_value(code)))
        *ret = refusal("Error: code is empty", "");
    else if (!w->runtime || !w->runtime->available || !w->code)
        *ret = refusal("Error: this server cannot run ", language->name);
    else if (execution_start(mcp_executions(call->mcp), call->owner, 2 * strlen(w->code), run,
                 work_free, w, &e, &err) < 0)
        *ret = mcp_tool_error(&err);
    if (!e)
        work_free(w);
    return e;
}

int execute_call(struct mcp_call *call, const json_t *arguments, json_t **ret)
{
    struct execution *e = NULL;
    int r = execution_retry(call, &e, ret);
    if (r == 0)
        e = begin(call, arguments, ret);
    if (r < 0 || !e)
        return r < 0 ? r : 0;
    r = execution_answer(e, call, EXECUTION_SOFT_MS, ret);
    if (r == -ECANCELED)
        execution_cancel(e); /* the client never learnt its id */
    execution_unref(e);
    return r;
}
