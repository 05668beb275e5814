/* SPDX-License-Identifier: Apache-2.0 */

/* See pydantic.h. Types, texts and conversion rules are those of pydantic 2, so that clients
 * which read them need no change. */

#include "http/compat/pydantic.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "base/utf8.h"
#include "run/decode.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { PROBLEMS_MAX = 100 }; /* a longer list helps no one, and the client chooses its length */

static const struct {
    const char *type;
    const char *text;
} problem_texts[] = {
    {"missing", "Field required"},
    {"string_type", "Input should be a valid string"},
    {"int_type", "Input should be a valid integer"},
    {"int_parsing", "Input should be a valid integer, unable to parse string as an integer"},
    {"int_from_float", "Input should be a valid integer, got a number with a fractional part"},
    {"bool_type", "Input should be a valid boolean"},
    {"bool_parsing", "Input should be a valid boolean, unable to interpret input"},
    {"dict_type", "Input should be a valid dictionary"},
    {"model_attributes_type",
        "Input should be a valid dictionary or object to extract fields from"},
    {"json_invalid", "JSON decode error"},
};

static const char *text_of(const char *type)
{
    for (size_t i = 0; i < sizeof(problem_texts) / sizeof(problem_texts[0]); i++) {
        if (str_eq(problem_texts[i].type, type))
            return problem_texts[i].text;
    }
    return type;
}

/* Makes a path like ["body", "files", "a.py"], of at most three steps. */
static json_t *place(const char *where, const char *field, const char *below)
{
    json_t *loc = json_array();
    const char *const steps[] = {where, field, below};
    for (size_t i = 0; i < 3 && steps[i]; i++)
        (void)json_array_append_new(loc, json_string(steps[i]));
    return loc;
}

/* Takes loc and ctx (or NULL). Borrows input; NULL means null. */
static void complain(json_t *detail, const char *type, json_t *loc, const char *text,
    const json_t *input, json_t *ctx)
{
    if (json_array_size(detail) >= PROBLEMS_MAX) {
        json_decref(loc);
        json_decref(ctx);
        return;
    }
    json_t *item = json_pack("{s:s, s:o, s:s}", "type", type, "loc", loc, "msg", text);
    if (input)
        (void)json_object_set(item, "input", (json_t *)input);
    else
        (void)json_object_set_new(item, "input", json_null());
    if (ctx)
        (void)json_object_set_new(item, "ctx", ctx);
    (void)json_array_append_new(detail, item);
}

void fastapi_value_error(
    json_t *detail, const char *field, const json_t *input, const char *fmt, ...)
{
    struct err line; /* err_set() turns the text into one line that JSON can carry */
    char text[sizeof(line.message)];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    (void)err_set(&line, ERR_INVALID, EINVAL, "Value error, %s", text);
    complain(detail, "value_error", place("body", field, NULL), line.message, input,
        json_pack("{s:{}}", "error"));
}

void fastapi_check_range(json_t *detail, const char *where, const char *field,
    const json_t *input, int64_t number, int64_t least, int64_t most)
{
    char text[96];
    bool is_less = number < least;
    if (!is_less && number <= most)
        return;
    json_int_t bound = is_less ? least : most;
    (void)snprintf(text, sizeof(text), "Input should be %s than or equal to %lld",
        is_less ? "greater" : "less", (long long)bound);
    complain(detail, is_less ? "greater_than_equal" : "less_than_equal",
        place(where, field, NULL), text, input,
        json_pack("{s:I}", is_less ? "ge" : "le", bound));
}

int fastapi_body(const struct http_request *req, json_t **ret, json_t *detail)
{
    const char *type = http_header(req, "Content-Type");
    struct err err = {0};
    json_t *body = NULL;
    size_t at;
    if (req->body.len == 0) {
        complain(detail, "missing", place("body", NULL, NULL), text_of("missing"), NULL, NULL);
        return -EINVAL;
    }
    if (type && *type && !http_is_json(type)) {
        cleanup_free char *text = utf8_repair(req->body.data, req->body.len, NULL);
        body = json_string(text);
    } else if (json_run_parse_any(req->body.data, req->body.len, &body, &at, &err) < 0) {
        json_t *empty = json_object();
        json_t *loc = place("body", NULL, NULL);
        (void)json_array_append_new(loc, json_integer((json_int_t)at));
        complain(detail, "json_invalid", loc, text_of("json_invalid"), empty,
            json_pack("{s:s}", "error", err.message));
        json_decref(empty);
        return -EINVAL;
    }
    if (json_is_object(body)) {
        *ret = body;
        return 0;
    }
    complain(detail, "model_attributes_type", place("body", NULL, NULL),
        text_of("model_attributes_type"), body, NULL);
    json_decref(body);
    return -EINVAL;
}

/* Accepts what Python's int() accepts, and "7.0". More than 18 digits become INT64_MAX. */
static bool parse_number(const char *text, int64_t *ret)
{
    int64_t value = 0;
    unsigned digits = 0;
    const char *p = text + strspn(text, " \t\n\r\f\v");
    bool is_negative = *p == '-';
    p += *p == '-' || *p == '+';
    for (; isdigit((unsigned char)*p) || (*p == '_' && digits && isdigit((unsigned char)p[1]));
         p++) {
        if (*p == '_')
            continue;
        value = ++digits > 18 ? INT64_MAX : value * 10 + (*p - '0');
    }
    if (digits && p[0] == '.' && p[1] == '0')
        p += 1 + strspn(p + 1, "0");
    p += strspn(p, " \t\n\r\f\v");
    *ret = is_negative ? -value : value;
    return digits && !*p;
}

/* The take functions return NULL or the type of the problem. */
static const char *take_number(const json_t *value, int64_t *ret)
{
    if (json_whole(value, ret))
        return NULL;
    if (json_is_boolean(value)) {
        *ret = json_is_true(value);
    } else if (json_is_real(value)) {
        return "int_from_float";
    } else if (json_is_string(value)) {
        return strlen(json_string_value(value)) == json_string_length(value) &&
                       parse_number(json_string_value(value), ret)
                   ? NULL
                   : "int_parsing";
    } else {
        return "int_type";
    }
    return NULL;
}

static const char *take_bool(const json_t *value, int64_t *ret)
{
    static const char *const words[] = {
        "0", "1", "off", "on", "f", "t", "false", "true", "n", "y", "no", "yes"};
    if (json_is_boolean(value)) {
        *ret = json_is_true(value);
        return NULL;
    }
    if (json_is_string(value)) {
        for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
            if (strcasecmp(words[i], json_string_value(value)) == 0) {
                *ret = i % 2;
                return NULL;
            }
        }
        return "bool_parsing";
    }
    if (!json_is_number(value) || json_number_value(value) != floor(json_number_value(value)))
        return "bool_type";
    *ret = json_number_value(value) != 0;
    return json_number_value(value) == *ret ? NULL : "bool_parsing";
}

/* Reports problems of members itself. Returns "" when there were some. */
static const char *take_texts(const json_t *value, const char *name, json_t *detail)
{
    const char *problem = NULL;
    const char *key;
    json_t *item;
    if (!json_is_object(value))
        return "dict_type";
    json_object_foreach((json_t *)value, key, item)
    {
        if (json_is_string(item))
            continue;
        complain(detail, "string_type", place("body", name, key), text_of("string_type"), item,
            NULL);
        problem = "";
    }
    return problem;
}

/* All members are required strings; no route needs more yet. */
static const char *take_object(const json_t *value, const struct field *field, json_t *detail)
{
    const char *whole = NULL;
    if (!json_is_object(value))
        return "model_attributes_type";
    for (size_t i = 0; i < field->member_count; i++) {
        const char *name = field->members[i].name;
        const json_t *member = json_object_get(value, name);
        const char *problem = !member                  ? "missing"
                              : json_is_string(member) ? NULL
                                                       : "string_type";
        if (!problem)
            continue;
        complain(detail, problem, place("body", field->name, name), text_of(problem),
            member ? member : value, NULL);
        whole = "";
    }
    return whole;
}

static const char *take(
    const json_t *value, const struct field *field, struct field_value *ret, json_t *detail)
{
    switch (field->kind) {
    case FIELD_NUMBER:
        return take_number(value, &ret->number);
    case FIELD_BOOL:
        return take_bool(value, &ret->number);
    case FIELD_TEXTS:
        return take_texts(value, field->name, detail);
    case FIELD_OBJECT:
        return take_object(value, field, detail);
    default:
        return json_is_string(value) ? NULL : "string_type";
    }
}

void fastapi_check(const json_t *body, const struct field *fields, size_t count,
    struct field_value *values, json_t *detail)
{
    for (size_t i = 0; i < count; i++) {
        const struct field *field = &fields[i];
        const json_t *value = json_object_get(body, field->name);
        const char *problem = NULL;
        values[i] = (struct field_value){0};
        if (!value && field->required)
            problem = "missing";
        else if (value && !(field->nullable && json_is_null(value)))
            problem = take(value, field, &values[i], detail);
        if (problem && *problem)
            complain(detail, problem, place("body", field->name, NULL), text_of(problem),
                value ? value : body, NULL);
        else if (!problem && value && !json_is_null(value))
            values[i].json = value;
    }
}

void fastapi_query_number(
    const struct http_request *req, const char *name, int64_t *value, json_t *detail)
{
    const char *text = http_query(req, name);
    if (!text)
        return;
    json_t *input = json_string(text);
    if (!input)
        input = json_string("");
    const char *problem = take_number(input, value);
    if (problem)
        complain(detail, problem, place("query", name, NULL), text_of(problem), input, NULL);
    else
        fastapi_check_range(detail, "query", name, input, *value, 0, INT64_MAX);
    json_decref(input);
}

static void reply_object(struct http_reply *reply, int status, json_t *object)
{
    char *text = json_dumps(object, JSON_COMPACT);
    json_decref(object);
    reply_json(reply, status, text, text ? strlen(text) : 0);
}

void fastapi_refuse(struct http_reply *reply, const json_t *detail)
{
    reply_object(reply, 422, json_pack("{s:O}", "detail", (json_t *)detail));
}

void fastapi_error(struct http_reply *reply, const struct err *err)
{
    reply_error(reply, err); /* status and headers are the same as for other routes */
    reply_object(reply, reply->status, json_pack("{s:s}", "detail", err->message));
}
