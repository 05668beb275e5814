/* SPDX-License-Identifier: Apache-2.0 */

/* See message.h. Everything that a stranger chooses is bounded here: depth and number of values
 * (json/read.h), the lengths of ids and methods. */

#include "mcp/message.h"

#include "base/cleanup.h"
#include "base/str.h"
#include "base/utf8.h"
#include "json/read.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void mcp_error_done(struct mcp_error *error)
{
    json_decref(error->data);
    *error = (struct mcp_error){0};
}

static void fail(struct mcp_error *error, unsigned http_code, int code, const char *fmt,
    va_list args) __attribute__((format(printf, 4, 0)));

static void fail(
    struct mcp_error *error, unsigned http_code, int code, const char *fmt, va_list args)
{
    mcp_error_done(error);
    error->code = code;
    error->http_code = http_code;
    (void)vsnprintf(error->message, sizeof(error->message), fmt, args);
}

int mcp_fail(struct mcp_error *error, int code, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    fail(error, 0, code, fmt, args);
    va_end(args);
    return -EINVAL;
}

int mcp_fail_http(struct mcp_error *error, unsigned http_code, int code, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    fail(error, http_code, code, fmt, args);
    va_end(args);
    return -EINVAL;
}

int mcp_parse(const char *text, size_t len, json_t **ret, struct mcp_error *error)
{
    struct json_problem problem;
    struct err err = {0};
    size_t weight;
    if (json_read_weigh(text, len, &weight, &err) < 0)
        return mcp_fail_http(error, 400, MCP_PARSE, "not JSON that we read: %s", err.message);
    *ret = json_read(text, len, &problem);
    if (!*ret)
        return mcp_fail_http(
            error, 400, MCP_PARSE, "not JSON: %s at byte %zu", problem.text, problem.at);
    return 0;
}

const char *mcp_text(const json_t *object, const char *name, size_t max)
{
    const json_t *value = json_object_get(object, name);
    const char *text = json_string_value(value);
    size_t len = json_string_length(value);
    return text && len <= max && strlen(text) == len ? text : NULL;
}

/* Ids are strings or integers. */
static json_t *id_of(const json_t *value)
{
    json_t *id = json_object_get(value, "id");
    bool is_text = json_is_string(id) && json_string_length(id) <= MCP_ID_MAX;
    return is_text || json_is_integer(id) ? id : NULL;
}

static int read_response(const json_t *value, struct mcp_message *ret, struct mcp_error *error)
{
    ret->kind = MCP_RESPONSE;
    ret->result = json_object_get(value, "result");
    ret->error = json_object_get(value, "error");
    if (!ret->result == !ret->error)
        return mcp_fail_http(
            error, 400, MCP_INVALID, "a message has a method, a result or an error");
    if (json_object_get(value, "id") && !ret->id && !json_is_null(json_object_get(value, "id")))
        return mcp_fail_http(error, 400, MCP_INVALID, "an id is a string or an integer");
    return 0;
}

int mcp_message_read(json_t *value, struct mcp_message *ret, struct mcp_error *error)
{
    *ret = (struct mcp_message){0};
    if (!json_is_object(value))
        return mcp_fail_http(error, 400, MCP_INVALID, "a message is an object");
    ret->id = id_of(value);
    if (!str_eq(mcp_text(value, "jsonrpc", 8), "2.0"))
        return mcp_fail_http(error, 400, MCP_INVALID, "the member jsonrpc must be \"2.0\"");
    if (!json_object_get(value, "method"))
        return read_response(value, ret, error);
    ret->method = mcp_text(value, "method", MCP_METHOD_MAX);
    if (!ret->method)
        return mcp_fail_http(
            error, 400, MCP_INVALID, "method is a string of at most %d bytes", MCP_METHOD_MAX);
    ret->kind = json_object_get(value, "id") ? MCP_REQUEST : MCP_NOTIFICATION;
    if (ret->kind == MCP_REQUEST && !ret->id)
        return mcp_fail_http(error, 400, MCP_INVALID,
            "an id is an integer or a string of at most %d bytes", MCP_ID_MAX);
    ret->params = json_object_get(value, "params");
    ret->meta = json_object_get(ret->params, "_meta");
    if ((ret->params && !json_is_object(ret->params)) ||
        (ret->meta && !json_is_object(ret->meta)))
        return mcp_fail_http(error, 400, MCP_PARAMS, "params and params._meta are objects");
    return 0;
}

json_t *mcp_result(json_t *id, json_t *result)
{
    return json_pack("{s:s, s:O, s:o}", "jsonrpc", "2.0", "id", id, "result", result);
}

json_t *mcp_error_message(json_t *id, const struct mcp_error *error)
{
    size_t len;
    /* A message that was cut may end inside a code point. */
    cleanup_free char *text = utf8_repair(error->message, strlen(error->message), &len);
    json_t *body = json_pack("{s:i, s:s%}", "code", error->code, "message", text, len);
    if (error->data)
        (void)json_object_set(body, "data", error->data);
    json_t *message = json_pack("{s:s, s:o}", "jsonrpc", "2.0", "error", body);
    if (id)
        (void)json_object_set(message, "id", id);
    return message;
}

json_t *mcp_notification(const char *method, json_t *params)
{
    return json_pack("{s:s, s:s, s:o}", "jsonrpc", "2.0", "method", method, "params",
        params ? params : json_object());
}
