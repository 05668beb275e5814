/* SPDX-License-Identifier: Apache-2.0 */

/* See openapi.h. src/http/openapi/ has one file per area of the API; tools/embed-json.py puts
 * them into the program. An area has
 *   tag         name and description of the area,
 *   operations  by "METHOD /path", as in the table of routes,
 *   path        the schemas of {id} and the like,
 *   errors      the schema of an error by its status, or "Text"; the rest is "default", or
 *               else `Error`,
 *   schemas     for components.schemas.
 * base.json has what belongs to no area. The table of routes adds summary, key and statuses to
 * each operation. A string "$NAME" stands for a value that code owns (numbers[], values[]). */

#include "http/openapi.h"

#include "base/answer.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "http/routes.h"
#include "image/recipe.h"
#include "judge/decode.h"
#include "openapi_areas.h"
#include "proto/package.h"
#include "service/selftest.h"
#include "service/status.h"
#include "session/channel.h"
#include "session/decode.h"
#include "session/terminal.h"
#include "version.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Refusals that may come before a route is looked at, or from any of them. */
static const char any_route[] = "400 403 413 414 421 431 500 503";

static const struct {
    const char *name;
    json_int_t value;
} numbers[] = {
    {"ARGS_MAX", PACKAGE_MAX_ARGS},
    {"ENV_MAX", PACKAGE_MAX_ENV},
    {"RUN_PAGE_DEFAULT", RUN_PAGE_DEFAULT},
    {"RUN_PAGE_MAX", RUN_PAGE_MAX},
    {"FILES_MAX", PACKAGE_MAX_FILES},
    {"GLOBS_MAX", PACKAGE_MAX_GLOBS},
    {"GLOB_MAX", STR_GLOB_MAX},
    {"WORD_MAX", RUN_WORD_MAX},
    {"NETWORK_ENTRIES_MAX", NETWORK_MAX_ENTRIES},
    {"SECRETS_MAX", NETWORK_MAX_SECRETS},
    {"MOUNTS_MAX", sizeof(((struct run_spec *)NULL)->mounts) /
                       sizeof(((struct run_spec *)NULL)->mounts[0])},
    {"TESTS_MAX", JUDGE_MAX_TESTS},
    {"GROUPS_MAX", JUDGE_MAX_GROUPS},
    {"PARALLEL_MAX", JUDGE_MAX_PARALLEL},
    {"JUDGE_NAME_MAX", JUDGE_NAME_MAX},
    {"JUDGE_WORDS_MAX", JUDGE_WORDS_MAX},
    {"POINTS_MAX", JUDGE_POINTS_MAX},
    {"SESSION_NAME_MAX", SESSION_NAME_MAX},
    {"PLACE_NAME", PLACE_NAME},
    {"SECONDS_MAX", SESSION_SECONDS_MAX},
    {"FRAME_MAX", CHANNEL_FRAME_MAX},
    {"TOOLS_MAX", TOOLS_MAX},
    {"TOOL_NAME_MAX", TOOL_NAME_MAX},
    {"TOOL_CALLS_MAX", TOOL_CALLS_MAX},
    {"TOOL_CALLS_DEFAULT", TOOL_CALLS_DEFAULT},
    {"TOOL_TIMEOUT_DEFAULT_MS", TOOL_TIMEOUT_DEFAULT_MS},
    {"FORKS_MAX", SESSION_FORKS_MAX},
    {"IMAGE_NAME_MAX", IMAGE_NAME_MAX},
    {"RECIPE_PACKAGES_MAX", RECIPE_PACKAGES_MAX},
    {"RECIPE_TEXT_MAX", RECIPE_TEXT_MAX},
    {"RECIPE_PRELOAD_MAX", RECIPE_PRELOAD_MAX},
    {"CHECKPOINT_NAME_MAX", CHECKPOINT_NAME_MAX},
    {"TERMINAL_ROWS", TERMINAL_ROWS},
    {"TERMINAL_COLS", TERMINAL_COLS},
    {"TERMINAL_SIDE_MAX", TERMINAL_SIDE_MAX},
    {"STATUS_BOXES_MAX", STATUS_BOXES_MAX},
    {"SELFTEST_IDS_MAX", SELFTEST_IDS_MAX},
    {"SELFTEST_ID_MAX", SELFTEST_ID_MAX},
};

static json_t *error_codes(const struct run_limits *maxima)
{
    json_t *list = json_array();
    for (size_t i = ERR_NONE + 1; i < ERR_CODE_COUNT; i++)
        (void)json_array_append_new(list, json_string(err_table[i].name));
    return list;
}

static json_t *in_units(const struct limit_info *info, uint64_t value)
{
    return info->scale == 1 ? json_integer((json_int_t)value)
                            : json_real((double)value / info->scale);
}

/* The schema of a limit, without bounds. */
static json_t *limit_schema(const struct limit_info *info)
{
    return json_pack("{s:s, s:s}", "type", info->scale == 1 ? "integer" : "number",
        "description", info->text);
}

static json_t *limits_asked(const struct run_limits *maxima)
{
    struct run_limits most = *maxima;
    json_t *object = json_object();
    for (size_t i = 0; i < limit_count; i++) {
        const struct limit_info *info = &limit_table[i];
        json_t *schema = limit_schema(info);
        (void)json_object_set_new(schema, "minimum", in_units(info, info->min));
        (void)json_object_set_new(
            schema, "maximum", in_units(info, *limit_member(&most, info)));
        (void)json_object_set_new(object, info->name, schema);
    }
    return object;
}

static json_t *limits_in_force(const struct run_limits *maxima)
{
    json_t *object = json_object();
    for (size_t i = 0; i < limit_count; i++)
        (void)json_object_set_new(object, limit_table[i].name, limit_schema(&limit_table[i]));
    return object;
}

static json_t *limit_names(const struct run_limits *maxima)
{
    json_t *list = json_array();
    for (size_t i = 0; i < limit_count; i++)
        (void)json_array_append_new(list, json_string(limit_table[i].name));
    return list;
}

static json_t *wall_ms_max(const struct run_limits *maxima)
{
    return json_integer((json_int_t)maxima->wall_ms);
}

static const struct {
    const char *name;
    json_t *(*make)(const struct run_limits *maxima);
} values[] = {
    {"ERROR_CODES", error_codes},
    {"LIMITS", limits_asked},
    {"LIMIT_NAMES", limit_names},
    {"LIMIT_VALUES", limits_in_force},
    {"WALL_MS_MAX", wall_ms_max},
};

static json_t *value_of(const char *name, const struct run_limits *maxima)
{
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        if (str_eq(numbers[i].name, name))
            return json_integer(numbers[i].value);
    }
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        if (str_eq(values[i].name, name))
            return values[i].make(maxima);
    }
    return NULL;
}

/* Replaces every "$NAME" below an object or array. */
static int fill_in(json_t *node, const struct run_limits *maxima, struct err *err)
{
    int r = 0;
    size_t i;
    json_t *item;
    json_array_foreach(node, i, item)
    {
        if (r == 0)
            r = fill_in(item, maxima, err);
    }
    for (void *at = json_object_iter(node); at && r == 0;
         at = json_object_iter_next(node, at)) {
        item = json_object_iter_value(at);
        const char *text = json_string_value(item);
        if (!text || text[0] != '$') {
            r = fill_in(item, maxima, err);
            continue;
        }
        json_t *value = value_of(text + 1, maxima);
        if (!value)
            return err_set(err, ERR_INTERNAL, EINVAL, "openapi: nothing is called %s", text);
        (void)json_object_iter_set_new(node, at, value);
    }
    return r;
}

static const char *meaning_of(const char *status)
{
    for (size_t i = ERR_NONE + 1; i < ERR_CODE_COUNT; i++) {
        char number[16];
        (void)snprintf(number, sizeof(number), "%d", err_table[i].http_status);
        if (str_eq(number, status))
            return err_table[i].text;
    }
    return "The request was refused.";
}

/* A reference to the response of an error, which is made when it is first needed. */
static json_t *error_response(const json_t *area, const char *status, json_t *shared)
{
    const json_t *errors = json_object_get(area, "errors");
    const char *schema = json_string_value(json_object_get(errors, status));
    char ref[96];
    char name[64];
    if (!schema)
        schema = json_string_value(json_object_get(errors, "default"));
    if (!schema)
        schema = "Error";
    (void)snprintf(name, sizeof(name), "%s%s", schema, status);
    if (json_object_get(shared, name))
        return json_pack("{s:s+}", "$ref", "#/components/responses/", name);
    (void)snprintf(ref, sizeof(ref), "#/components/schemas/%s", schema);
    json_t *content =
        str_eq(schema, "Text")
            ? json_pack("{s:{s:{s:s}}}", "text/plain", "schema", "type", "string")
            : json_pack("{s:{s:{s:s}}}", "application/json", "schema", "$ref", ref);
    json_t *response =
        json_pack("{s:s, s:o}", "description", meaning_of(status), "content", content);
    if (str_eq(status, "429") || str_eq(status, "503"))
        (void)json_object_set_new(response, "headers",
            json_pack("{s:{s:s, s:{s:s}}}", "Retry-After", "description",
                "Seconds after which a retry makes sense.", "schema", "type", "integer"));
    (void)json_object_set_new(shared, name, response);
    return json_pack("{s:s+}", "$ref", "#/components/responses/", name);
}

/* Adds the errors of a list of statuses. What is not an error must be in the area's file. */
static int add_errors(const struct route *route, const json_t *area, const char *statuses,
    json_t *responses, json_t *shared, struct err *err)
{
    for (const char *p = statuses; *p; p += strcspn(p, " "), p += *p == ' ') {
        char status[4];
        (void)snprintf(status, sizeof(status), "%.3s", p);
        if (json_object_get(responses, status))
            continue;
        if (status[0] < '4')
            return err_set(err, ERR_INTERNAL, EINVAL,
                "openapi: %s %s may answer %s, but its operation does not have that status",
                route->method, route->path, status);
        (void)json_object_set_new(responses, status, error_response(area, status, shared));
    }
    return 0;
}

/* The statuses of an operation that are not errors must be in the table of routes. */
static int check_statuses(const struct route *route, const json_t *responses, struct err *err)
{
    const char *status;
    json_t *response;
    json_object_foreach((json_t *)responses, status, response)
    {
        if (!strstr(route->answers, status) && !strstr(any_route, status))
            return err_set(err, ERR_INTERNAL, EINVAL,
                "openapi: %s %s does not answer %s, but its operation does", route->method,
                route->path, status);
    }
    return 0;
}

/* "/v1/runs/{id}" has the parameter `id`, "{path...}" the parameter `path`. */
static void add_path_parameters(const struct route *route, const json_t *area, json_t *list)
{
    size_t at = 0;
    for (const char *p = strchr(route->path, '{'); p; p = strchr(p + 1, '{')) {
        char name[32];
        (void)snprintf(name, sizeof(name), "%.*s", (int)strcspn(p + 1, ".}"), p + 1);
        json_t *schema = json_object_get(json_object_get(area, "path"), name);
        (void)json_array_insert_new(list, at++,
            json_pack("{s:s, s:s, s:b, s:O}", "name", name, "in", "path", "required", 1,
                "schema", schema));
    }
}

static json_t *security_of(const struct route *route)
{
    json_t *list = json_array();
    if (route->auth == AUTH_LOCAL)
        (void)json_array_append_new(list, json_object());
    if (route->auth != AUTH_NONE) {
        (void)json_array_append_new(list, json_pack("{s:[]}", "bearer"));
        (void)json_array_append_new(list, json_pack("{s:[]}", "apiKey"));
    }
    return list;
}

/* Completes the operation of a route from the route's row. */
static int complete(
    const struct route *route, const json_t *area, json_t *op, json_t *shared, struct err *err)
{
    json_t *responses = json_object_get(op, "responses");
    json_t *parameters = json_object_get(op, "parameters");
    int r = check_statuses(route, responses, err);
    if (r < 0)
        return r;
    if (!parameters) {
        parameters = json_array();
        (void)json_object_set_new(op, "parameters", parameters);
    }
    add_path_parameters(route, area, parameters);
    (void)json_object_set_new(op, "summary", json_string(route->summary));
    (void)json_object_set_new(
        op, "tags", json_pack("[O]", json_object_get(json_object_get(area, "tag"), "name")));
    (void)json_object_set_new(op, "security", security_of(route));
    r = add_errors(route, area, route->answers, responses, shared, err);
    if (r == 0)
        r = add_errors(route, area, any_route, responses, shared, err);
    /* A parameter that is too long leads to no route. */
    if (r == 0 && strchr(route->path, '{'))
        r = add_errors(route, area, "404", responses, shared, err);
    return r;
}

/* Finds the area and the operation of a route. `key` becomes "METHOD /path". */
static json_t *find_operation(
    json_t *areas, const struct route *route, char key[128], json_t **ret_area)
{
    size_t i;
    size_t plain = strlen(route->path) - (str_has_suffix(route->path, "...}") ? 4 : 0);
    (void)snprintf(key, 128, "%s %.*s%s", route->method, (int)plain, route->path,
        route->path[plain] ? "}" : "");
    json_array_foreach(areas, i, *ret_area)
    {
        json_t *op = json_object_get(json_object_get(*ret_area, "operations"), key);
        if (op)
            return op;
    }
    return NULL;
}

static int add_routes(json_t *areas, json_t *paths, json_t *shared, struct err *err)
{
    int r = 0;
    for (size_t i = 0; r == 0 && i < route_count; i++) {
        const struct route *route = &route_table[i];
        json_t *area;
        char key[128];
        char method[8];
        json_t *op = find_operation(areas, route, key, &area);
        if (!op)
            return err_set(err, ERR_INTERNAL, ENOENT, "openapi: %s has no operation", key);
        r = complete(route, area, op, shared, err);
        const char *name = strchr(key, ' ') + 1;
        json_t *path = json_object_get(paths, name);
        if (!path) {
            path = json_object();
            (void)json_object_set_new(paths, name, path);
        }
        size_t len = strcspn(key, " ");
        for (size_t k = 0; k <= len; k++)
            method[k] = (char)(k < len ? key[k] | 0x20 : '\0');
        (void)json_object_set(path, method, op);
        (void)json_object_del(json_object_get(area, "operations"), key);
    }
    return r;
}

/* Adds the tag and the schemas of each area. An operation that is left has no route. */
static int add_areas(json_t *areas, json_t *tags, json_t *schemas, struct err *err)
{
    size_t i;
    json_t *area;
    json_array_foreach(areas, i, area)
    {
        json_t *left = json_object_get(area, "operations");
        if (json_object_size(left))
            return err_set(err, ERR_INTERNAL, ENOENT, "openapi: %s has no route",
                json_object_iter_key(json_object_iter(left)));
        (void)json_array_append(tags, json_object_get(area, "tag"));
        if (json_object_update_missing(schemas, json_object_get(area, "schemas")) < 0)
            return err_set(err, ERR_UNAVAILABLE, ENOMEM, "out of memory");
    }
    return 0;
}

char *openapi_make(const struct run_limits *maxima, struct err *err)
{
    json_t *all = json_loadb((const char *)openapi_areas, sizeof(openapi_areas), 0, NULL);
    json_t *areas = json_object_get(all, "areas");
    json_t *base = json_object_get(all, "base");
    json_t *info = json_object_get(base, "info");
    json_t *schemas = json_object_get(base, "schemas");
    json_t *paths = json_object();
    json_t *shared = json_object();
    json_t *tags = json_array();
    char *text = NULL;
    (void)json_object_set_new(info, "version", json_string(HERMES_VERSION));
    if (fill_in(all, maxima, err) == 0 && add_routes(areas, paths, shared, err) == 0 &&
        add_areas(areas, tags, schemas, err) == 0) {
        json_t *doc = json_pack("{s:s, s:O, s:O, s:O, s:{s:O, s:O, s:O}, s:[{s:[]}, {s:[]}]}",
            "openapi", "3.1.0", "info", info, "tags", tags, "paths", paths, "components",
            "securitySchemes", json_object_get(base, "securitySchemes"), "responses", shared,
            "schemas", schemas, "security", "bearer", "apiKey");
        text = json_dumps(doc, JSON_COMPACT | RESULT_JSON_FLAGS);
        json_decref(doc);
        if (!text)
            (void)err_set(err, ERR_UNAVAILABLE, ENOMEM, "there is no memory for the document");
    }
    json_decref(tags);
    json_decref(shared);
    json_decref(paths);
    json_decref(all);
    return text;
}

/* The document is the same for every request, and making it takes a few milliseconds. */
int handle_openapi(struct http_request *req, struct http_reply *reply, struct err *err)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static struct answer *kept;
    (void)pthread_mutex_lock(&lock);
    if (!kept) {
        cleanup_free char *text = openapi_make(&req->state->config.maxima, err);
        kept = text ? answer_of_text(text) : NULL;
    }
    bool is_made = kept && answer_use(kept);
    (void)pthread_mutex_unlock(&lock);
    if (!is_made)
        return err->code ? -ENOMEM : err_set(err, ERR_UNAVAILABLE, ENOMEM, "out of memory");
    reply_answer(reply, 200, kept);
    return 0;
}
