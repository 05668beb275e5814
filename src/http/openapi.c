/* SPDX-License-Identifier: Apache-2.0 */

/* GET /openapi.json, generated from the table of routes, so that no route can be missing. */

#include "http/routes.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "run/encode.h"
#include "version.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* "/v1/runs/{id}" has the parameter `id`, "{path...}" the parameter `path`. */
static json_t *parameters_json(const char *path)
{
    json_t *list = json_array();
    for (const char *p = strchr(path, '{'); p; p = strchr(p + 1, '{'))
        (void)json_array_append_new(
            list, json_pack("{s:s%, s:s, s:b, s:{s:s}}", "name", p + 1, strcspn(p + 1, ".}"),
                      "in", "path", "required", 1, "schema", "type", "string"));
    return list;
}

static json_t *responses_json(const char *answers)
{
    json_t *object = json_object();
    while (*answers) {
        char status[4] = "";
        const char *text = answers[0] == '2' ? "Done." : "Refused.";
        size_t len = strcspn(answers, " ");
        memcpy(status, answers, len < 3 ? len : 3);
        for (size_t i = 1; i < ERR_CODE_COUNT; i++) {
            char number[8];
            (void)snprintf(number, sizeof(number), "%d", err_table[i].http_status);
            if (str_eq(number, status))
                text = err_table[i].text;
        }
        (void)json_object_set_new(object, status, json_pack("{s:s}", "description", text));
        answers += len + (answers[len] == ' ');
    }
    return object;
}

static json_t *operation_json(const struct route *route)
{
    json_t *op = json_pack("{s:s, s:o, s:o}", "summary", route->summary, "parameters",
        parameters_json(route->path), "responses", responses_json(route->answers));
    if (route->body == BODY_JSON || route->body == BODY_TYPED_JSON)
        (void)json_object_set_new(op, "requestBody",
            json_pack("{s:b, s:{s:{s:{s:s}}}}", "required", 1, "content", "application/json",
                "schema", "type", "object"));
    if (route->body == BODY_STREAM)
        (void)json_object_set_new(op, "requestBody",
            json_pack("{s:b, s:{s:{s:{s:s, s:s}}}}", "required", 1, "content",
                "application/octet-stream", "schema", "type", "string", "format", "binary"));
    if (route->auth == AUTH_NONE)
        (void)json_object_set_new(op, "security", json_array());
    return op;
}

int handle_openapi(struct http_request *req, struct http_reply *reply, struct err *err)
{
    json_t *paths = json_object();
    for (size_t i = 0; i < route_count; i++) {
        const struct route *route = &route_table[i];
        char name[128];
        char method[8];
        size_t len = 0;
        for (; len < sizeof(method) - 1 && route->method[len]; len++)
            method[len] = (char)(route->method[len] | 0x20);
        method[len] = '\0';
        size_t plain = strlen(route->path) - (str_has_suffix(route->path, "...}") ? 4 : 0);
        (void)snprintf(name, sizeof(name), "%.*s%s", (int)plain, route->path,
            route->path[plain] ? "}" : "");
        json_t *path = json_object_get(paths, name);
        if (!path) {
            path = json_object();
            (void)json_object_set_new(paths, name, path);
        }
        (void)json_object_set_new(path, method, operation_json(route));
    }
    json_t *doc = json_pack("{s:s, s:{s:s, s:s, s:s}, s:o, s:{s:{s:{s:s, s:s}, s:{s:s, s:s, "
                            "s:s}}}, s:[{s:[]}, {s:[]}]}",
        "openapi", "3.0.3", "info", "title", "Hermes", "version", HERMES_VERSION, "description",
        "Runs code that nobody trusts, in a box.", "paths", paths, "components",
        "securitySchemes", "bearer", "type", "http", "scheme", "bearer", "apiKey", "type",
        "apiKey", "in", "header", "name", "X-API-Key", "security", "bearer", "apiKey");
    char *text = json_dumps(doc, JSON_COMPACT);
    json_decref(doc);
    if (!text)
        return err_set(err, ERR_INTERNAL, 0, "cannot write the description");
    reply_json(reply, 200, text, strlen(text));
    return 0;
}
