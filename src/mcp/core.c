/* SPDX-License-Identifier: Apache-2.0 */

/* See mcp.h: which era a message belongs to, the checks of the stateless wire, and the way of a
 * request through the table of methods. */

#include "mcp/internal.h"

#include "base/alloc.h"
#include "base/base64.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "mcp/execution/execution.h"
#include "version.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { TTL_MS = 5 * 60 * 1000, NAME_MAX_LEN = 4096, HEADER_MAX_LEN = 8192 };

const char *const mcp_version_names[MCP_VERSIONS] = {
    [MCP_2025_03_26] = "2025-03-26",
    [MCP_2025_06_18] = "2025-06-18",
    [MCP_2025_11_25] = "2025-11-25",
    [MCP_2026_07_28] = "2026-07-28",
};

int mcp_version_find(const char *name)
{
    for (int i = 0; i < MCP_VERSIONS; i++) {
        if (str_eq(name, mcp_version_names[i]))
            return i;
    }
    return -1;
}

struct mcp *mcp_new(struct state *state)
{
    struct mcp *mcp = xcalloc(1, sizeof(*mcp));
    mcp->state = state;
    (void)pthread_mutex_init(&mcp->lock, NULL);
    (void)pthread_mutex_init(&mcp->engine_lock, NULL);
    id_random(mcp->secret, sizeof(mcp->secret));
    mcp->executions = executions_new(mcp);
    return mcp;
}

void mcp_stop(struct mcp *mcp)
{
    (void)pthread_mutex_lock(&mcp->lock);
    mcp->is_stopping = true;
    (void)pthread_mutex_unlock(&mcp->lock);
    executions_stop(mcp->executions);
    struct mcp_peer *peer;
    while ((peer = mcp_peer_first(mcp))) {
        mcp_peer_end(peer);
        mcp_peer_unref(peer);
    }
}

struct state *mcp_state(const struct mcp *mcp)
{
    return mcp->state;
}

struct executions *mcp_executions(struct mcp *mcp)
{
    return mcp->executions;
}

void mcp_on_engine(struct mcp *mcp, int (*open)(struct state *state, struct err *err))
{
    mcp->open_engine = open;
}

int mcp_need_engine(struct mcp *mcp, struct err *err)
{
    int r = 0;
    (void)pthread_mutex_lock(&mcp->engine_lock);
    if (mcp->open_engine && !mcp->is_open)
        r = mcp->open_engine(mcp->state, err);
    mcp->is_open = mcp->is_open || r == 0;
    (void)pthread_mutex_unlock(&mcp->engine_lock);
    return r;
}

static json_t *load(const char *text)
{
    return text ? json_loads(text, 0, NULL) : NULL;
}

static void set_text(json_t *object, const char *name, const char *text)
{
    if (text)
        (void)json_object_set_new(object, name, json_string(text));
}

static void set_json(json_t *object, const char *name, const char *text)
{
    if (text)
        (void)json_object_set_new(object, name, load(text));
}

static json_t *tools_json(const struct mcp_surface *surface)
{
    json_t *list = json_array();
    for (size_t i = 0; i < surface->tool_count; i++) {
        const struct mcp_tool *tool = &surface->tools[i];
        json_t *row = json_object();
        set_text(row, "name", tool->name);
        set_text(row, "title", tool->title);
        set_text(row, "description", tool->description);
        set_json(row, "inputSchema", tool->input_schema);
        set_json(row, "outputSchema", tool->output_schema);
        set_json(row, "annotations", tool->annotations);
        (void)json_array_append_new(list, row);
    }
    return list;
}

static json_t *prompts_json(const struct mcp_surface *surface)
{
    json_t *list = json_array();
    for (size_t i = 0; i < surface->prompt_count; i++) {
        const struct mcp_prompt *prompt = &surface->prompts[i];
        json_t *row = json_object();
        set_text(row, "name", prompt->name);
        set_text(row, "title", prompt->title);
        set_text(row, "description", prompt->description);
        set_json(row, "arguments", prompt->arguments);
        (void)json_array_append_new(list, row);
    }
    return list;
}

const struct mcp_lists *mcp_lists_of(struct mcp *mcp, const struct mcp_surface *surface)
{
    struct mcp_lists *found = NULL;
    (void)pthread_mutex_lock(&mcp->lock);
    for (size_t i = 0; !found && i < MCP_SURFACES_MAX; i++) {
        struct mcp_lists *lists = &mcp->lists[i];
        if (!lists->surface)
            *lists = (struct mcp_lists){.surface = surface,
                .tools = tools_json(surface),
                .prompts = prompts_json(surface),
                .templates = surface->templates ? load(surface->templates) : json_array()};
        if (lists->surface == surface)
            found = lists;
    }
    (void)pthread_mutex_unlock(&mcp->lock);
    return found;
}

/* --- the stateless wire */

bool mcp_message_is_modern(const struct mcp_message *m, const char *version)
{
    /* Versions are dates: their order is that of their names. */
    bool by_header = version && strlen(version) == strlen(mcp_version_names[0]) &&
                     strcmp(version, mcp_version_names[MCP_2026_07_28]) >= 0;
    return by_header || json_object_get(m->meta, MCP_META "protocolVersion");
}

/* Undoes =?base64?...?=; the caller frees it. NULL when it is not valid. */
static char *header_value(const char *text)
{
    static const char open[] = "=?base64?";
    size_t len = strlen(text);
    size_t head = sizeof(open) - 1;
    char *plain;
    size_t size;
    if (!str_has_prefix(text, open) || !str_has_suffix(text, "?=") || len < head + 2)
        return xstrdup(text);
    if (base64_decode(text + head, len - head - 2, &plain, &size) < 0)
        return NULL;
    if (strlen(plain) == size)
        return plain;
    free(plain);
    return NULL;
}

static bool header_equals(const char *header, const char *value)
{
    cleanup_free char *plain =
        header && strlen(header) <= HEADER_MAX_LEN ? header_value(header) : NULL;
    return plain && value && str_eq(plain, value);
}

static int mismatch(struct mcp_call *call, const char *header)
{
    return mcp_fail_http(&call->error, 400, MCP_HEADER,
        "the header %s does not repeat what the body says", header);
}

/* The name that the header Mcp-Name repeats, or NULL. */
static const char *name_of(const struct mcp_message *m)
{
    if (str_eq(m->method, "tools/call") || str_eq(m->method, "prompts/get"))
        return mcp_text(m->params, "name", NAME_MAX_LEN);
    if (str_eq(m->method, "resources/read"))
        return mcp_text(m->params, "uri", NAME_MAX_LEN);
    return NULL;
}

/* The text that a header has for an argument. The caller frees it. */
static char *argument_text(const json_t *value)
{
    return json_is_string(value) ? xstrdup(json_string_value(value))
                                 : json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
}

/* Arguments that the tool's schema marks x-mcp-header come again as Mcp-Param-NAME. */
static int check_params(struct mcp_call *call, const struct mcp_headers *headers)
{
    const char *tool = mcp_text(call->message.params, "name", NAME_MAX_LEN);
    const json_t *arguments = json_object_get(call->message.params, "arguments");
    const json_t *tools = mcp_lists_of(call->mcp, call->surface)->tools;
    json_t *properties = NULL;
    const char *name;
    json_t *property;
    for (size_t i = 0; !properties && i < json_array_size(tools); i++) {
        const json_t *row = json_array_get(tools, i);
        if (str_eq(json_string_value(json_object_get(row, "name")), tool))
            properties = json_object_get(json_object_get(row, "inputSchema"), "properties");
    }
    json_object_foreach(properties, name, property)
    {
        const char *mark = json_string_value(json_object_get(property, "x-mcp-header"));
        const json_t *value = json_object_get(arguments, name);
        if (!mark)
            continue;
        cleanup_free char *header = xasprintf("Mcp-Param-%s", mark);
        const char *sent = headers->get(headers->context, header);
        bool is_absent = !value || json_is_null(value);
        cleanup_free char *text = is_absent ? NULL : argument_text(value);
        if (is_absent ? sent != NULL : !header_equals(sent, text))
            return mismatch(call, header);
    }
    return 0;
}

static int check_headers(struct mcp_call *call, const struct mcp_headers *headers)
{
    const struct mcp_message *m = &call->message;
    const char *version = mcp_text(m->meta, MCP_META "protocolVersion", 64);
    bool has_name = str_eq(m->method, "tools/call") || str_eq(m->method, "prompts/get") ||
                    str_eq(m->method, "resources/read");
    if (!str_eq(headers->version, version))
        return mismatch(call, "MCP-Protocol-Version");
    if (!str_eq(headers->method, m->method))
        return mismatch(call, "Mcp-Method");
    if (has_name && !header_equals(headers->name, name_of(m)))
        return mismatch(call, "Mcp-Name");
    return str_eq(m->method, "tools/call") ? check_params(call, headers) : 0;
}

static int check_version(struct mcp_call *call)
{
    const char *version = mcp_text(call->message.meta, MCP_META "protocolVersion", 64);
    if (str_eq(version, mcp_version_names[MCP_2026_07_28]))
        return 0;
    (void)mcp_fail_http(&call->error, 400, MCP_VERSION,
        "this server does not speak that version on the stateless wire");
    json_t *supported = json_array();
    for (int i = MCP_VERSIONS - 1; i >= 0; i--)
        (void)json_array_append_new(supported, json_string(mcp_version_names[i]));
    call->error.data = json_pack("{s:o, s:O}", "supported", supported, "requested",
        json_object_get(call->message.meta, MCP_META "protocolVersion"));
    return -EINVAL;
}

static bool is_level(const char *level)
{
    static const char *const levels[] = {
        "debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"};
    for (size_t i = 0; i < sizeof(levels) / sizeof(levels[0]); i++) {
        if (str_eq(level, levels[i]))
            return true;
    }
    return false;
}

int mcp_check_modern(struct mcp_call *call, const struct mcp_headers *headers)
{
    const struct mcp_message *m = &call->message;
    const json_t *level = json_object_get(m->meta, MCP_META "logLevel");
    call->version = MCP_2026_07_28;
    call->capabilities = json_object_get(m->meta, MCP_META "clientCapabilities");
    if (!mcp_text(m->meta, MCP_META "protocolVersion", 64) ||
        !json_is_object(call->capabilities))
        return mcp_fail_http(&call->error, 400, MCP_PARAMS,
            "params._meta needs " MCP_META "protocolVersion and " MCP_META
            "clientCapabilities");
    int r = headers ? check_headers(call, headers) : 0;
    if (r == 0)
        r = check_version(call);
    if (r < 0)
        return r;
    const struct mcp_method *method = mcp_method_find(m->method);
    if (m->kind == MCP_REQUEST &&
        (!method || !method->is_modern || (method->exists && !method->exists(call->surface))))
        return mcp_fail_http(
            &call->error, 404, MCP_NO_METHOD, "there is no method %s here", m->method);
    if (level && !is_level(json_string_value(level)))
        return mcp_fail_http(&call->error, 400, MCP_PARAMS, "there is no such log level");
    return 0;
}

/* --- the way of a request */

static const struct mcp_tool *find_tool(const struct mcp_call *call)
{
    const char *name = mcp_text(call->message.params, "name", NAME_MAX_LEN);
    for (size_t i = 0; i < call->surface->tool_count; i++) {
        if (str_eq(call->surface->tools[i].name, name))
            return &call->surface->tools[i];
    }
    return NULL;
}

bool mcp_streams(struct mcp_call *call)
{
    if (str_eq(call->message.method, "subscriptions/listen"))
        return true;
    if (!str_eq(call->message.method, "tools/call"))
        return false;
    const struct mcp_tool *tool = find_tool(call);
    return tool && (tool->streams || mcp_wants_progress(call) ||
                       (!mcp_is_modern(call) && mcp_can_elicit(call)));
}

bool mcp_is_slow(const struct mcp_message *m)
{
    const struct mcp_method *method = m->method ? mcp_method_find(m->method) : NULL;
    return method && method->is_slow;
}

/* Members that every result of the stateless wire has. */
static void finish_modern(
    const struct mcp_call *call, const struct mcp_method *method, json_t *result)
{
    json_t *meta = json_object_get(result, "_meta");
    if (!json_object_get(result, "resultType"))
        (void)json_object_set_new(result, "resultType", json_string("complete"));
    if (method->has_ttl) {
        (void)json_object_set_new(result, "ttlMs", json_integer(TTL_MS));
        (void)json_object_set_new(result, "cacheScope", json_string("private"));
    }
    if (!meta) {
        meta = json_object();
        (void)json_object_set_new(result, "_meta", meta);
    }
    (void)json_object_set_new(meta, MCP_META "serverInfo",
        json_pack("{s:s, s:s}", "name", call->surface->name, "version", HERMES_VERSION));
}

static int dispatch(struct mcp_call *call, json_t **ret)
{
    const struct mcp_method *method = mcp_method_find(call->message.method);
    bool is_modern = mcp_is_modern(call);
    if (!method || !(is_modern ? method->is_modern : method->is_legacy) ||
        (method->exists && !method->exists(call->surface)))
        return mcp_fail_http(&call->error, is_modern ? 404 : 0, MCP_NO_METHOD,
            "there is no method %s here", call->message.method);
    call->tool = str_eq(method->name, "tools/call") ? find_tool(call) : NULL;
    int r = method->handle(call, call->message.params, ret);
    if (r == 0 && is_modern)
        finish_modern(call, method, *ret);
    return r;
}

json_t *mcp_answer(struct mcp_call *call)
{
    json_t *result = NULL;
    int r = dispatch(call, &result);
    json_t *message = NULL;
    if (r == 0)
        message = mcp_result(call->message.id, result);
    else if (r != -ECANCELED || call->error.code)
        message = mcp_error_message(call->message.id, &call->error);
    return message;
}
