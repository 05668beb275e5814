/* SPDX-License-Identifier: Apache-2.0 */

/* The table of methods and those that answer from the surface's tables. */

#include "mcp/internal.h"

#include "base/alloc.h"
#include "base/base64.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "version.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { PAGE = 100, URI_MAX = 4096, VALUES_MAX = 100, LISTEN_URIS_MAX = 256, NAP_MS = 500 };

json_t *mcp_capabilities(const struct mcp_surface *surface)
{
    json_t *all = json_object();
    const struct {
        const char *name;
        bool is_offered;
        bool changes;
    } lists[] = {{"tools", surface->tool_count, surface->tools_change},
        {"prompts", surface->prompt_count, surface->prompts_change},
        {"resources", surface->read_resource, surface->resources_change}};
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
        if (!lists[i].is_offered)
            continue;
        json_t *one = json_object();
        if (lists[i].changes)
            (void)json_object_set_new(one, "listChanged", json_true());
        (void)json_object_set_new(all, lists[i].name, one);
    }
    if (surface->resources_change)
        (void)json_object_set_new(json_object_get(all, "resources"), "subscribe", json_true());
    if (surface->complete)
        (void)json_object_set_new(all, "completions", json_object());
    if (surface->has_logging)
        (void)json_object_set_new(all, "logging", json_object());
    return all;
}

static json_t *about(const struct mcp_surface *surface)
{
    json_t *info = json_pack("{s:s, s:s}", "name", surface->name, "version", HERMES_VERSION);
    if (surface->title)
        (void)json_object_set_new(info, "title", json_string(surface->title));
    return info;
}

static int initialize(struct mcp_call *call, const json_t *params, json_t **ret)
{
    const char *wanted = mcp_text(params, "protocolVersion", 64);
    if (!wanted)
        return mcp_fail(&call->error, MCP_PARAMS, "initialize needs protocolVersion");
    int version = mcp_version_find(wanted);
    if (version < 0 || version > MCP_NEWEST_LEGACY)
        version = MCP_NEWEST_LEGACY;
    mcp_peer_greet(call->peer, (enum mcp_version)version, params);
    *ret = json_pack("{s:s, s:o, s:o}", "protocolVersion", mcp_version_names[version],
        "capabilities", mcp_capabilities(call->surface), "serverInfo", about(call->surface));
    if (call->surface->instructions)
        (void)json_object_set_new(
            *ret, "instructions", json_string(call->surface->instructions));
    return 0;
}

static int discover(struct mcp_call *call, const json_t *params, json_t **ret)
{
    json_t *versions = json_array();
    for (int i = MCP_VERSIONS - 1; i >= 0; i--)
        (void)json_array_append_new(versions, json_string(mcp_version_names[i]));
    *ret = json_pack("{s:o, s:o}", "supportedVersions", versions, "capabilities",
        mcp_capabilities(call->surface));
    if (call->surface->instructions)
        (void)json_object_set_new(
            *ret, "instructions", json_string(call->surface->instructions));
    return 0;
}

static int ping(struct mcp_call *call, const json_t *params, json_t **ret)
{
    *ret = json_object();
    return 0;
}

/* A cursor is a letter and the number of the first item. The letter keeps clients from
 * computing cursors. */
static int first_of(struct mcp_call *call, const json_t *params, size_t *ret)
{
    const json_t *cursor = json_object_get(params, "cursor");
    const char *text = mcp_text(params, "cursor", 24);
    uint64_t first = 0;
    if (cursor && (!text || text[0] != 'p' || str_parse_u64(text + 1, &first) < 0 ||
                      first == 0 || first % PAGE))
        return mcp_fail(&call->error, MCP_PARAMS, "this cursor is not one of ours");
    *ret = (size_t)first;
    return 0;
}

static void set_next(json_t *result, size_t next)
{
    char text[24];
    (void)snprintf(text, sizeof(text), "p%zu", next);
    (void)json_object_set_new(result, "nextCursor", json_string(text));
}

/* A page of a list that exists as a whole. */
static int page(struct mcp_call *call, const json_t *params, const char *name,
    const json_t *list, json_t **ret)
{
    size_t first = 0;
    size_t count = json_array_size(list);
    int r = first_of(call, params, &first);
    if (r == 0 && first && first >= count)
        r = mcp_fail(&call->error, MCP_PARAMS, "this cursor is not one of ours");
    if (r < 0)
        return r;
    json_t *items = json_array();
    for (size_t i = first; i < count && i < first + PAGE; i++)
        (void)json_array_append(items, json_array_get(list, i));
    *ret = json_pack("{s:o}", name, items);
    if (first + PAGE < count)
        set_next(*ret, first + PAGE);
    return 0;
}

static int tools_list(struct mcp_call *call, const json_t *params, json_t **ret)
{
    return page(call, params, "tools", mcp_lists_of(call->mcp, call->surface)->tools, ret);
}

static const json_t *schema_of(struct mcp_call *call)
{
    const json_t *tools = mcp_lists_of(call->mcp, call->surface)->tools;
    size_t index = (size_t)(call->tool - call->surface->tools);
    return json_object_get(json_array_get(tools, index), "inputSchema");
}

static int tools_call(struct mcp_call *call, const json_t *params, json_t **ret)
{
    json_t *arguments = json_object_get(params, "arguments");
    const char *name = mcp_text(params, "name", URI_MAX);
    struct err err = {0};
    if (!call->tool)
        return mcp_fail(&call->error, MCP_PARAMS, "there is no tool %.100s; see tools/list",
            name ? name : "without a name");
    if (arguments && !json_is_object(arguments))
        return mcp_fail(&call->error, MCP_PARAMS, "arguments must be an object");
    json_t *given = arguments ? json_incref(arguments) : json_object();
    cleanup_free char *problem = mcp_schema_problem(schema_of(call), given);
    int r = 0;
    if (problem) {
        cleanup_free char *text =
            xasprintf("Error: %s. See the input schema of %s.", problem, call->tool->name);
        *ret = mcp_text_result(text, strlen(text), NULL, true);
    } else if (call->tool->needs_engine && mcp_need_engine(call->mcp, &err) < 0) {
        *ret = mcp_tool_error(&err);
    } else {
        r = call->tool->call(call, given, ret);
    }
    json_decref(given);
    return r;
}

static bool has_prompts(const struct mcp_surface *surface)
{
    return surface->prompt_count;
}

static int prompts_list(struct mcp_call *call, const json_t *params, json_t **ret)
{
    return page(call, params, "prompts", mcp_lists_of(call->mcp, call->surface)->prompts, ret);
}

static int prompts_get(struct mcp_call *call, const json_t *params, json_t **ret)
{
    const char *name = mcp_text(params, "name", URI_MAX);
    for (size_t i = 0; i < call->surface->prompt_count; i++) {
        if (str_eq(call->surface->prompts[i].name, name))
            return call->surface->prompts[i].get(
                call, json_object_get(params, "arguments"), ret);
    }
    return mcp_fail(&call->error, MCP_PARAMS, "there is no prompt %.100s; see prompts/list",
        name ? name : "without a name");
}

static bool has_resources(const struct mcp_surface *surface)
{
    return surface->read_resource;
}

static int resources_list(struct mcp_call *call, const json_t *params, json_t **ret)
{
    size_t first = 0;
    json_t *list = NULL;
    bool more = false;
    int r = first_of(call, params, &first);
    if (r == 0)
        r = call->surface->list_resources(call, first, PAGE, &list, &more);
    if (r < 0)
        return r;
    *ret = json_pack("{s:o}", "resources", list);
    if (more)
        set_next(*ret, first + PAGE);
    return 0;
}

static int templates_list(struct mcp_call *call, const json_t *params, json_t **ret)
{
    return page(call, params, "resourceTemplates",
        mcp_lists_of(call->mcp, call->surface)->templates, ret);
}

static int no_uri(struct mcp_call *call)
{
    return mcp_fail(&call->error, MCP_PARAMS, "uri is a string of at most %d bytes", URI_MAX);
}

static int resources_read(struct mcp_call *call, const json_t *params, json_t **ret)
{
    const char *uri = mcp_text(params, "uri", URI_MAX);
    json_t *contents = NULL;
    if (!uri)
        return no_uri(call);
    int r = call->surface->read_resource(call, uri, &contents);
    if (r == -ENOENT) {
        (void)mcp_fail(&call->error, mcp_is_modern(call) ? MCP_PARAMS : MCP_NO_RESOURCE,
            "there is no resource %.200s", uri);
        call->error.data = json_pack("{s:s}", "uri", uri);
    }
    if (r < 0)
        return r;
    *ret = json_pack("{s:o}", "contents", contents);
    return 0;
}

static bool has_subscriptions(const struct mcp_surface *surface)
{
    return surface->read_resource && surface->resources_change;
}

static int subscribe(struct mcp_call *call, const json_t *params, json_t **ret, bool on)
{
    const char *uri = mcp_text(params, "uri", URI_MAX);
    if (!uri)
        return no_uri(call);
    int r = mcp_peer_subscribe(call->peer, uri, on);
    if (r == -ENOMEM)
        return mcp_fail(&call->error, MCP_INTERNAL,
            "the server has no memory left for subscriptions; try again later");
    if (r < 0)
        return mcp_fail(&call->error, MCP_PARAMS, "a session has at most %d subscriptions",
            MCP_PEER_SUBSCRIPTIONS);
    *ret = json_object();
    return 0;
}

static int resources_subscribe(struct mcp_call *call, const json_t *params, json_t **ret)
{
    return subscribe(call, params, ret, true);
}

static int resources_unsubscribe(struct mcp_call *call, const json_t *params, json_t **ret)
{
    return subscribe(call, params, ret, false);
}

static bool has_completions(const struct mcp_surface *surface)
{
    return surface->complete;
}

static int complete(struct mcp_call *call, const json_t *params, json_t **ret)
{
    const json_t *ref = json_object_get(params, "ref");
    const json_t *argument = json_object_get(params, "argument");
    const char *type = mcp_text(ref, "type", 32);
    const char *name = mcp_text(ref, str_eq(type, "ref/resource") ? "uri" : "name", URI_MAX);
    const char *which = mcp_text(argument, "name", 128);
    const char *value = mcp_text(argument, "value", URI_MAX);
    json_t *values = NULL;
    if (!name || !which || !value ||
        (!str_eq(type, "ref/resource") && !str_eq(type, "ref/prompt")))
        return mcp_fail(&call->error, MCP_PARAMS,
            "completion needs ref {type, name or uri} and argument {name, value}");
    int r = call->surface->complete(call, name, which, value, &values);
    if (r < 0)
        return r;
    size_t total = json_array_size(values);
    while (json_array_size(values) > VALUES_MAX)
        (void)json_array_remove(values, VALUES_MAX);
    *ret = json_pack("{s:{s:o, s:I, s:b}}", "completion", "values", values, "total",
        (json_int_t)total, "hasMore", total > VALUES_MAX);
    return 0;
}

static bool has_logging(const struct mcp_surface *surface)
{
    return surface->has_logging;
}

/* The level changes nothing: tools of Hermes send no log messages. */
static int set_level(struct mcp_call *call, const json_t *params, json_t **ret)
{
    if (!mcp_text(params, "level", 15))
        return mcp_fail(&call->error, MCP_PARAMS, "level is a name such as \"info\"");
    *ret = json_object();
    return 0;
}

static void send_to_call(void *context, const json_t *message)
{
    const struct mcp_call *call = context;
    if (call->send)
        call->send(call->context, message);
}

/* The filter that is granted, and with it the listener. */
static json_t *grant(
    struct mcp_call *call, const json_t *wanted, struct mcp_listener *listener, json_t *uris)
{
    const struct {
        const char *name;
        bool is_offered;
        bool *is_granted;
    } flags[] = {{"toolsListChanged", call->surface->tools_change, &listener->tools},
        {"promptsListChanged", call->surface->prompts_change, &listener->prompts},
        {"resourcesListChanged", call->surface->resources_change, &listener->resources}};
    const json_t *list = json_object_get(wanted, "resourceSubscriptions");
    json_t *granted = json_object();
    for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++) {
        if (!flags[i].is_offered || !json_is_true(json_object_get(wanted, flags[i].name)))
            continue;
        *flags[i].is_granted = true;
        (void)json_object_set_new(granted, flags[i].name, json_true());
    }
    if (!has_subscriptions(call->surface) || !json_is_array(list))
        return granted;
    json_t *names = json_array();
    for (size_t i = 0; i < json_array_size(list) && i < LISTEN_URIS_MAX; i++) {
        const char *uri = json_string_value(json_array_get(list, i));
        if (uri && json_object_set_new(uris, uri, json_true()) == 0)
            (void)json_array_append_new(names, json_string(uri));
    }
    (void)json_object_set_new(granted, "resourceSubscriptions", names);
    return granted;
}

static int listen_changes(struct mcp_call *call, const json_t *params, json_t **ret)
{
    json_t *wanted = json_object_get(params, "notifications");
    json_t *uris = json_object();
    struct mcp_listener listener = {.surface = call->surface,
        .owner = call->owner,
        .uris = uris,
        .id = call->message.id,
        .send = send_to_call,
        .context = call};
    json_t *granted = grant(call, wanted, &listener, uris);
    mcp_send(call, mcp_notification("notifications/subscriptions/acknowledged",
                       json_pack("{s:o, s:{s:O}}", "notifications", granted, "_meta",
                           MCP_META "subscriptionId", call->message.id)));
    int r = mcp_listen(call->mcp, &listener);
    if (r < 0) {
        json_decref(uris);
        return mcp_fail(&call->error, MCP_INTERNAL,
            "this key listens on %d streams already; end one of them", MCP_LISTENERS_OF_KEY);
    }
    do {
        r = mcp_wait(call, -1, NAP_MS);
    } while (r == 0 && !call->mcp->is_stopping);
    mcp_unlisten(call->mcp, &listener);
    json_decref(uris);
    *ret = json_pack("{s:{s:O}}", "_meta", MCP_META "subscriptionId", call->message.id);
    return 0;
}

static const struct mcp_method methods[] = {
    {"initialize", true, false, false, false, NULL, initialize},
    {"server/discover", false, true, false, true, NULL, discover},
    {"ping", true, false, false, false, NULL, ping},
    {"tools/list", true, true, false, true, NULL, tools_list},
    {"tools/call", true, true, true, false, NULL, tools_call},
    {"prompts/list", true, true, false, true, has_prompts, prompts_list},
    {"prompts/get", true, true, false, false, has_prompts, prompts_get},
    {"resources/list", true, true, true, true, has_resources, resources_list},
    {"resources/templates/list", true, true, false, true, has_resources, templates_list},
    {"resources/read", true, true, true, true, has_resources, resources_read},
    {"resources/subscribe", true, false, false, false, has_subscriptions, resources_subscribe},
    {"resources/unsubscribe", true, false, false, false, has_subscriptions,
        resources_unsubscribe},
    {"completion/complete", true, true, false, false, has_completions, complete},
    {"logging/setLevel", true, false, false, false, has_logging, set_level},
    {"subscriptions/listen", false, true, true, false, NULL, listen_changes},
};

const struct mcp_method *mcp_method_find(const char *name)
{
    for (size_t i = 0; i < sizeof(methods) / sizeof(methods[0]); i++) {
        if (str_eq(methods[i].name, name))
            return &methods[i];
    }
    return NULL;
}
