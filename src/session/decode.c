/* SPDX-License-Identifier: Apache-2.0 */

/* See decode.h. Fields that a session shares with a run are decoded by run/decode.c. */

#include "session/decode.h"

#include "base/alloc.h"
#include "base/base64.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "network/policy.h"
#include "session/channel.h"
#include "json/body.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME_CHARS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"

enum { ENV_MAX = 64 << 10 }; /* bytes of variables */

static int get_number(
    const json_t *body, const char *field, uint64_t max, uint64_t *ret, struct err *err)
{
    const json_t *value = json_object_get(body, field);
    if (!value)
        return 0;
    int64_t number;
    if (!json_whole(value, &number))
        return err_field(err, field, "%s must be a whole number", field);
    if (number < 1 || (uint64_t)number > max)
        return err_field(
            err, field, "%s must be from 1 to %llu", field, (unsigned long long)max);
    *ret = (uint64_t)number;
    return 0;
}

static int get_bool(const json_t *body, const char *field, bool *ret, struct err *err)
{
    const json_t *value = json_object_get(body, field);
    if (value && !json_is_boolean(value))
        return err_field(err, field, "%s must be true or false", field);
    *ret = json_is_true(value);
    return 0;
}

static int get_name(const json_t *body, struct session_spec *ret, struct err *err)
{
    const json_t *value = json_object_get(body, "name");
    if (!value)
        return 0;
    size_t len = json_string_length(value);
    if (!json_is_string(value) || len > SESSION_NAME_MAX)
        return err_field(
            err, "name", "name must be a string of at most %d bytes", SESSION_NAME_MAX);
    const char *text = json_string_value(value);
    for (size_t i = 0; i < len; i++) {
        if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f)
            return err_field(err, "name", "name contains a control character");
    }
    memcpy(ret->name, text, len + 1);
    return 0;
}

static int get_backend(const json_t *body, struct session_spec *ret, struct err *err)
{
    const json_t *backend = json_object_get(body, "backend");
    const json_t *mode = json_object_get(body, "limits_mode");
    const char *name = json_string_value(backend);
    if (backend && (!name || !name[0] || strlen(name) != json_string_length(backend) ||
                       strlen(name) > PLACE_NAME || name[strspn(name, NAME_CHARS)]))
        return err_field(err, "backend",
            "backend must be a name of GET /v1/backends: at most %d letters, digits, - and _",
            PLACE_NAME);
    if (mode && !str_eq(json_string_value(mode), "strict") &&
        !str_eq(json_string_value(mode), "best_effort"))
        return err_field(err, "limits_mode", "limits_mode must be strict or best_effort");
    (void)snprintf(ret->backend, sizeof(ret->backend), "%s", name ? name : "");
    ret->is_best_effort = mode && str_eq(json_string_value(mode), "best_effort");
    return 0;
}

/* The bytes of the variables. They are bounded, because they are kept as long as the session is
 * remembered. */
static size_t words_size(const struct strv *words)
{
    size_t size = 0;
    for (size_t i = 0; i < words->count; i++)
        size += strlen(words->items[i]) + 1;
    return size;
}

int json_session_decode(const json_t *body, const struct runtime_registry *runtimes,
    const struct config *config, struct session_spec *ret, struct err *err)
{
    static const char *const own[] = {
        "idle_timeout_s", "max_lifetime_s", "name", "backend", "limits_mode", NULL};
    static const char *const shared[] = {
        "language", "image", "network", "secrets", "mounts", "limits", "env", NULL};
    struct json_run run;
    json_t *part = json_object();
    *ret = (struct session_spec){0};
    int r = json_known(body, own, shared, err);
    for (size_t i = 0; shared[i]; i++) {
        json_t *value = json_object_get(body, shared[i]);
        if (value)
            (void)json_object_set(part, shared[i], value);
    }
    if (r == 0)
        r = get_backend(body, ret, err);
    if (r == 0 && (r = get_name(body, ret, err)) == 0 &&
        (r = get_number(
             body, "idle_timeout_s", SESSION_SECONDS_MAX, &ret->idle_timeout_s, err)) == 0)
        r = get_number(body, "max_lifetime_s", SESSION_SECONDS_MAX, &ret->max_lifetime_s, err);
    if (r == 0) {
        r = json_run_decode(part, runtimes, &config->mounts, &run, err);
        ret->runtime = run.spec.runtime;
        ret->limits = run.spec.limits;
        ret->env = run.spec.env;
        run.spec.env = (struct strv){0};
        ret->network = take_ptr(run.spec.network);
        ret->secrets = run.spec.secrets;
        run.spec.secrets = (struct strv){0};
        ret->image_name = take_ptr(run.spec.image_name);
        ret->wants_no_image = run.spec.wants_no_image;
        memcpy(ret->mounts, run.spec.mounts, sizeof(ret->mounts));
        ret->mount_count = run.spec.mount_count;
        json_run_done(&run);
    }
    if (r == 0 && words_size(&ret->env) > ENV_MAX)
        r = err_set(err, ERR_TOO_LARGE, E2BIG,
            "the variables of a session have at most %d bytes; give the rest as files",
            ENV_MAX);
    json_decref(part);
    return r;
}

static int get_text(const json_t *body, const char *field, const char *encoding, char **ret,
    size_t *ret_len, struct err *err)
{
    const json_t *value = json_object_get(body, field);
    if (!value)
        return 0;
    if (!json_is_string(value))
        return err_field(err, field, "%s must be a string", field);
    size_t len = json_string_length(value);
    if (len > CHANNEL_FRAME_MAX)
        return err_set(err, ERR_TOO_LARGE, EMSGSIZE, "%s is larger than %d bytes", field,
            CHANNEL_FRAME_MAX);
    if (str_eq(encoding, "base64")) {
        int r = base64_decode(json_string_value(value), len, ret, ret_len);
        return r < 0 ? err_field(err, field, "%s is not valid base64", field) : 0;
    }
    char *copy = malloc(len + 1);
    if (!copy)
        return err_set(err, ERR_UNAVAILABLE, ENOMEM, "out of memory");
    memcpy(copy, json_string_value(value), len + 1);
    *ret = copy;
    *ret_len = len;
    return 0;
}

static bool is_tool_name(const char *name)
{
    size_t len = strlen(name);
    return len >= 1 && len <= TOOL_NAME_MAX && !(name[0] >= '0' && name[0] <= '9') &&
           strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") ==
               len;
}

static int check_tool(const json_t *tools, size_t index, struct err *err)
{
    static const char *const known[] = {"name", "description", "input_schema", NULL};
    const json_t *tool = json_array_get(tools, index);
    const json_t *description = json_object_get(tool, "description");
    const json_t *schema = json_object_get(tool, "input_schema");
    const char *name = json_string_value(json_object_get(tool, "name"));
    char field[32];
    (void)snprintf(field, sizeof(field), "tools[%zu]", index);
    if (!json_is_object(tool))
        return err_field(err, field, "%s must be an object", field);
    if (json_known(tool, known, NULL, err) < 0)
        return -EINVAL;
    if (!name || !is_tool_name(name))
        return err_field(err, field,
            "the name of a tool has 1 to %d letters, digits and underscores", TOOL_NAME_MAX);
    if ((description && !json_is_string(description)) || (schema && !json_is_object(schema)))
        return err_field(err, field, "description must be a string and input_schema an object");
    for (size_t i = 0; i < index; i++) {
        if (str_eq(json_string_value(json_object_get(json_array_get(tools, i), "name")), name))
            return err_field(err, field, "there are two tools `%.64s`", name);
    }
    return 0;
}

static int get_tools(const json_t *body, bool streams, struct exec_spec *ret, struct err *err)
{
    json_t *tools = json_object_get(body, "tools");
    int r = 0;
    if (!tools)
        return 0;
    if (!json_is_array(tools) || json_array_size(tools) > TOOLS_MAX)
        return err_field(err, "tools", "tools must be a list of at most %d objects", TOOLS_MAX);
    if (!streams)
        return err_field(err, "tools",
            "tools need a stream on which they are called: send Accept: text/event-stream");
    for (size_t i = 0; r == 0 && i < json_array_size(tools); i++)
        r = check_tool(tools, i, err);
    if (r == 0 && json_array_size(tools) > 0)
        ret->tools = json_incref(tools);
    return r;
}

int json_exec_decode(const json_t *body, const struct config *config, bool streams,
    struct exec_spec *ret, struct err *err)
{
    static const char *const own[] = {
        "code", "timeout_ms", "wait", "tools", "max_tool_calls", "tool_timeout_ms", NULL};
    static const char *const shared[] = {"stdin", "stdin_encoding", NULL};
    const json_t *encoding = json_object_get(body, "stdin_encoding");
    uint64_t calls = TOOL_CALLS_DEFAULT;
    *ret = (struct exec_spec){.tool_timeout_ms = TOOL_TIMEOUT_DEFAULT_MS};
    int r = json_known(body, own, shared, err);
    if (r < 0)
        return r;
    if (!json_object_get(body, "code"))
        return err_field(err, "code", "code is missing");
    if (encoding && !str_eq(json_string_value(encoding), "utf8") &&
        !str_eq(json_string_value(encoding), "base64"))
        return err_field(err, "stdin_encoding", "stdin_encoding must be utf8 or base64");
    if ((r = get_text(body, "code", "utf8", &ret->code, &ret->code_len, err)) < 0 ||
        (r = get_text(body, "stdin", json_string_value(encoding), &ret->stdin_data,
             &ret->stdin_size, err)) < 0 ||
        (r = get_number(body, "timeout_ms", config->maxima.wall_ms, &ret->timeout_ms, err)) <
            0 ||
        (r = get_bool(body, "wait", &ret->wait, err)) < 0 ||
        (r = get_number(body, "max_tool_calls", TOOL_CALLS_MAX, &calls, err)) < 0 ||
        (r = get_number(
             body, "tool_timeout_ms", config->maxima.wall_ms, &ret->tool_timeout_ms, err)) < 0)
        return r;
    ret->max_tool_calls = (unsigned)calls;
    return get_tools(body, streams, ret, err);
}

int json_session_change_decode(const json_t *body, struct network_policy **ret, struct err *err)
{
    static const char *const own[] = {"network", NULL};
    const json_t *value = json_object_get(body, "network");
    *ret = NULL;
    int r = json_known(body, own, NULL, err);
    if (r < 0)
        return r;
    if (!value)
        return err_field(err, "network", "network is missing");
    return network_policy_decode(value, "network", ret, err);
}

int json_tool_result_check(const json_t *body, size_t body_len, struct err *err)
{
    static const char *const known[] = {"id", "output", "error", NULL};
    const json_t *id = json_object_get(body, "id");
    const json_t *output = json_object_get(body, "output");
    const json_t *error = json_object_get(body, "error");
    int r = json_known(body, known, NULL, err);
    if (r < 0)
        return r;
    if (body_len > TOOL_RESULT_MAX)
        return err_set(err, ERR_TOO_LARGE, EMSGSIZE,
            "the answer of a tool has at most %d bytes", TOOL_RESULT_MAX);
    if (!json_is_string(id))
        return err_field(err, "id", "id must be the id of a tool_call event");
    if (!output == !error)
        return err_field(err, "output", "there must be output or error, and not both");
    if (error && !json_is_string(error))
        return err_field(err, "error", "error must be a string");
    return 0;
}

int json_fork_decode(const char *data, size_t len, unsigned *ret_count, struct err *err)
{
    static const char *const known[] = {"count", NULL};
    uint64_t count = 1;
    json_t *body = NULL;
    int r = len ? json_run_parse(data, len, &body, err) : 0;
    if (r == 0 && body)
        r = json_known(body, known, NULL, err);
    if (r == 0 && body)
        r = get_number(body, "count", SESSION_FORKS_MAX, &count, err);
    json_decref(body);
    *ret_count = (unsigned)count;
    return r;
}

int json_checkpoint_decode(const char *data, size_t len, const char *field, bool required,
    char ret[CHECKPOINT_NAME_MAX + 1], struct err *err)
{
    const char *const known[] = {field, NULL};
    json_t *body = NULL;
    ret[0] = '\0';
    int r = len ? json_run_parse(data, len, &body, err) : 0;
    if (r == 0 && body)
        r = json_known(body, known, NULL, err);
    const json_t *value = r == 0 ? json_object_get(body, field) : NULL;
    const char *text = json_string_value(value);
    if (r == 0 && !value && required)
        r = err_field(err, field, "%s is missing", field);
    else if (r == 0 && value &&
             (!text || !text[0] || strlen(text) != json_string_length(value) ||
                 strlen(text) > CHECKPOINT_NAME_MAX || text[strspn(text, NAME_CHARS)]))
        r = err_field(err, field,
            "%s must be 1 to %d letters, digits, dots, dashes and underscores", field,
            CHECKPOINT_NAME_MAX);
    else if (r == 0 && text)
        memcpy(ret, text, strlen(text) + 1);
    json_decref(body);
    return r;
}
