/* SPDX-License-Identifier: Apache-2.0 */

/* See routes.h. Paths are compared without decoding, so that no other spelling of a path can
 * bypass a check. */

#include "http/routes.h"

#include "base/str.h"

#include <stdio.h>
#include <string.h>

const struct route route_table[] = {
    {"POST", "/v1/runs", AUTH_KEY, BODY_JSON, false, handle_run_create,
        "Run a program. Waits for the result; with `async` answers at once; with `Accept: "
        "text/event-stream` streams.",
        "200 202 400 401 403 404 409 413 415 422 429 500 501 503 507", NULL},
    {"GET", "/v1/runs", AUTH_KEY, BODY_NONE, false, handle_run_list,
        "The caller's runs, the newest first (`limit`, `before`, `status`, `language`).",
        "200 400 401 503", NULL},
    {"GET", "/v1/runs/{id}", AUTH_KEY, BODY_NONE, false, handle_run_get,
        "State or result of a run.", "200 401 404", NULL},
    {"DELETE", "/v1/runs/{id}", AUTH_KEY, BODY_NONE, false, handle_run_delete,
        "Cancel a run that is queued or running.", "202 401 404 409", NULL},
    {"GET", "/v1/runs/{id}/events", AUTH_KEY, BODY_NONE, false, handle_run_events,
        "Events of a run as text/event-stream; resumes at Last-Event-ID.", "200 204 401 404",
        NULL},
    {"GET", "/v1/runs/{id}/request", AUTH_KEY, BODY_NONE, false, handle_run_request,
        "The request of a run, if it was kept (`keep_request`).", "200 401 404 503", NULL},
    {"POST", "/v1/runs/{id}/stdin", AUTH_KEY, BODY_ANY, false, handle_run_stdin,
        "Write the body to the open standard input of a run (`eof`).",
        "200 400 401 404 409 413 503", NULL},
    {"POST", "/v1/judge", AUTH_KEY, BODY_JSON, false, handle_judge_create,
        "Judge a program: one compile, many tests. Waits, answers at once or streams per test "
        "as "
        "/v1/runs does.",
        "200 202 400 401 403 404 409 413 415 429 500 501 503 507", NULL},
    {"GET", "/v1/judge/{id}", AUTH_KEY, BODY_NONE, false, handle_run_get,
        "State or result of a judgement.", "200 401 404", NULL},
    {"DELETE", "/v1/judge/{id}", AUTH_KEY, BODY_NONE, false, handle_run_delete,
        "Cancel a judgement.", "202 401 404 409", NULL},
    {"GET", "/v1/judge/{id}/events", AUTH_KEY, BODY_NONE, false, handle_run_events,
        "Events of a judgement as text/event-stream: `start`, `test` for each, `end`.",
        "200 204 401 404", NULL},
    {"POST", "/v1/sessions", AUTH_KEY, BODY_JSON, false, handle_session_create,
        "Start a session: a live interpreter or shell.",
        "201 400 401 403 404 409 413 415 422 429 500 501 502 503", NULL},
    {"GET", "/v1/backends", AUTH_KEY, BODY_NONE, false, handle_backend_list,
        "Places in which sessions can run.", "200 401", NULL},
    {"GET", "/v1/sessions", AUTH_KEY, BODY_NONE, false, handle_session_list,
        "The caller's sessions, the newest first.", "200 401", NULL},
    {"GET", "/v1/sessions/{id}", AUTH_KEY, BODY_NONE, false, handle_session_get,
        "State of a session.", "200 401 404", NULL},
    {"PATCH", "/v1/sessions/{id}", AUTH_KEY, BODY_JSON, false, handle_session_change,
        "Change what a session may reach (`network`), while it lives.",
        "200 400 401 403 404 409 413 415 501 503", NULL},
    {"DELETE", "/v1/sessions/{id}", AUTH_KEY, BODY_NONE, false, handle_session_delete,
        "End a session, whatever it does.", "204 401 404", NULL},
    {"POST", "/v1/sessions/{id}/exec", AUTH_KEY, BODY_JSON, false, handle_session_exec,
        "Run code in a session. Waits for the result; with `Accept: text/event-stream` "
        "streams.",
        "200 400 401 404 409 413 415 429 500 502 503", NULL},
    {"POST", "/v1/sessions/{id}/interrupt", AUTH_KEY, BODY_NONE, false,
        handle_session_interrupt, "Interrupt what a session runs.", "202 401 404 409", NULL},
    {"POST", "/v1/sessions/{id}/reset", AUTH_KEY, BODY_NONE, false, handle_session_reset,
        "A new interpreter in the same session; its files stay.",
        "200 401 404 409 422 429 500 502 503", NULL},
    {"GET", "/v1/sessions/{id}/jobs", AUTH_KEY, BODY_NONE, false, handle_session_jobs,
        "Background jobs of a shell.", "200 401 404 409", NULL},
    {"DELETE", "/v1/sessions/{id}/jobs/{job}", AUTH_KEY, BODY_NONE, false,
        handle_session_kill_job, "End a background job.", "200 401 404 409", NULL},
    {"GET", "/v1/sessions/{id}/variables", AUTH_KEY, BODY_NONE, false, handle_session_variables,
        "Names, types and short values of an idle session's variables.", "200 401 404 409",
        NULL},
    {"POST", "/v1/sessions/{id}/tool_results", AUTH_KEY, BODY_JSON, false,
        handle_session_tool_results, "Answer a `tool_call` event of an exec.",
        "204 400 401 404 409 413 415", NULL},
    {"GET", "/v1/sessions/{id}/files", AUTH_KEY, BODY_NONE, false, handle_file_list,
        "What lies in a directory of a session (`path`, `recursive`).",
        "200 400 401 404 409 429 503", NULL},
    {"GET", "/v1/sessions/{id}/files/{path...}", AUTH_KEY, BODY_NONE, false, handle_file_get,
        "A file of a session, as raw bytes.", "200 400 401 404 409 429 503", NULL},
    {"PUT", "/v1/sessions/{id}/files/{path...}", AUTH_KEY, BODY_STREAM, false, handle_file_put,
        "Write a file of a session; the body is its bytes (`executable`).",
        "201 204 400 401 404 409 429 503 507", NULL},
    {"DELETE", "/v1/sessions/{id}/files/{path...}", AUTH_KEY, BODY_NONE, false,
        handle_file_delete, "Delete a file or directory of a session (`recursive`).",
        "204 400 401 404 409 429 503", NULL},
    {"GET", "/v1/sessions/{id}/archive", AUTH_KEY, BODY_NONE, false, handle_file_archive,
        "A directory of a session as tar or zip (`path`, `format`).",
        "200 400 401 404 409 429 503", NULL},
    {"POST", "/v1/sessions/{id}/fork", AUTH_KEY, BODY_JSON, false, handle_session_fork,
        "Copies of an idle session: memory and files.",
        "201 400 401 404 409 413 415 429 500 501 503", NULL},
    {"POST", "/v1/sessions/{id}/checkpoints", AUTH_KEY, BODY_JSON, false,
        handle_session_checkpoint, "Keep the present state of a session under a name.",
        "201 400 401 404 409 413 415 429 500 501 503", NULL},
    {"GET", "/v1/sessions/{id}/checkpoints", AUTH_KEY, BODY_NONE, false,
        handle_session_checkpoints, "Kept states of a session.", "200 401 404", NULL},
    {"DELETE", "/v1/sessions/{id}/checkpoints/{name}", AUTH_KEY, BODY_NONE, false,
        handle_session_checkpoint_delete, "Give up a kept state.", "204 401 404 409", NULL},
    {"POST", "/v1/sessions/{id}/rollback", AUTH_KEY, BODY_JSON, false, handle_session_rollback,
        "Go on from a kept state.", "200 400 401 404 409 413 415 429 500 501 503", NULL},
    {"POST", "/v1/sessions/{id}/packages", AUTH_KEY, BODY_JSON, false, handle_session_packages,
        "Install packages in a live session. Waits; with `Accept: text/event-stream` answers "
        "events.",
        "200 400 401 404 409 422 429 500 501 503 507", NULL},
    {"POST", "/v1/sessions/{id}/commit", AUTH_KEY, BODY_JSON, false, handle_session_commit,
        "Make an image of a session's packages.", "201 400 401 404 409 501 507", NULL},
    {"GET", "/v1/sessions/{id}/pty", AUTH_KEY, BODY_NONE, false, handle_session_terminal,
        "A terminal in a session, as a WebSocket (`rows`, `cols`).",
        "101 400 401 403 404 409 426 429 501 503", NULL},
    {"POST", "/v1/images", AUTH_KEY, BODY_JSON, false, handle_image_create,
        "Build an image: a language with packages. Waits; with `Accept: text/event-stream` "
        "streams the log. The same recipe again answers 200 with the same image.",
        "200 201 400 401 403 404 409 413 415 422 429 500 501 503 507", NULL},
    {"GET", "/v1/images", AUTH_KEY, BODY_NONE, false, handle_image_list,
        "The caller's images and those for all.", "200 401", NULL},
    {"POST", "/v1/images/import", AUTH_KEY, BODY_STREAM, false, handle_image_import,
        "Import an archive as an image: OCI layout, docker save, or a root file system as tar; "
        "plain, gzip or zstd (`name`, `language`, `ref`).",
        "201 400 401 409 413 429 500 501 503 507", NULL},
    {"GET", "/v1/images/{name}/export", AUTH_KEY, BODY_NONE, false, handle_image_export,
        "An image as an archive (`format`, `compression`).",
        "200 400 401 404 429 500 501 503 507", NULL},
    {"GET", "/v1/images/{name}", AUTH_KEY, BODY_NONE, false, handle_image_get,
        "One image, by name or id.", "200 401 404 501", NULL},
    {"DELETE", "/v1/images/{name}", AUTH_KEY, BODY_NONE, false, handle_image_delete,
        "Remove an image that nothing uses.", "204 401 404 409 501", NULL},
    {"GET", "/v1/approvals", AUTH_KEY, BODY_NONE, false, handle_approval_list,
        "Approvals that the caller may see, the newest first (`state`, `limit`).",
        "200 400 401", NULL},
    {"GET", "/v1/approvals/events", AUTH_KEY, BODY_NONE, false, handle_approval_events,
        "Approvals as text/event-stream: those that are pending, then each that changes. While "
        "a caller who may decide listens, a person is reachable.",
        "200 400 401 429", NULL},
    {"GET", "/v1/approvals/rules", AUTH_OPERATOR, BODY_NONE, false, handle_approval_rules,
        "The rules about effects; for operators.", "200 401 403", NULL},
    {"PUT", "/v1/approvals/rules", AUTH_OPERATOR, BODY_JSON, false, handle_approval_set_rules,
        "Replace the rules about effects; for operators.", "200 400 401 403 413 415 503 507",
        NULL},
    {"GET", "/v1/approvals/grants", AUTH_KEY, BODY_NONE, false, handle_approval_grants,
        "What was approved for a session or for ever.", "200 401", NULL},
    {"DELETE", "/v1/approvals/grants/{grant}", AUTH_KEY, BODY_NONE, false,
        handle_approval_revoke, "Revoke a grant.", "204 401 404 503 507", NULL},
    {"GET", "/v1/approvals/log", AUTH_KEY, BODY_NONE, false, handle_approval_log,
        "The log of decisions, the oldest first (`after`, `limit`); an operator sees all rows.",
        "200 400 401", NULL},
    {"GET", "/v1/approvals/{id}", AUTH_KEY, BODY_NONE, false, handle_approval_get,
        "One approval.", "200 401 404", NULL},
    {"POST", "/v1/approvals/{id}", AUTH_KEY, BODY_JSON, false, handle_approval_decide,
        "Approve or deny. The first decision counts: the same again is 200, another one 409.",
        "200 400 401 403 404 409 413 415 503 507", NULL},
    {"GET", "/v1/runtimes", AUTH_KEY, BODY_NONE, false, handle_runtimes,
        "Languages, versions, default limits and what is missing.", "200 401", NULL},
    {"POST", "/run", AUTH_RUNNER, BODY_ANY, false, handle_runner_run,
        "Run a program; fields and answers of the quartermaster code runner.",
        "200 400 401 403 404 413 422 429 500 501 503", fastapi_error},
    {"GET", "/images", AUTH_NONE, BODY_NONE, false, handle_runner_images,
        "The images of POST /run.", "200", NULL},
    {"GET", "/runtimes", AUTH_NONE, BODY_NONE, false, handle_runner_images,
        "The same as /images.", "200", NULL},
    {"POST", "/prebuild", AUTH_RUNNER, BODY_ANY, false, handle_runner_prebuild,
        "Build an image: a base and a setup script. Waits. Replaces the image of the tag when "
        "it has succeeded.",
        "200 400 401 403 409 413 422 429 500 501 503", fastapi_error},
    {"GET", "/prebuilds", AUTH_RUNNER, BODY_NONE, false, handle_runner_prebuilds,
        "The caller's prebuilt images and those for all.", "200 401 403", fastapi_error},
    {"POST", "/prebuilds/cleanup", AUTH_RUNNER, BODY_NONE, false, handle_runner_cleanup,
        "Remove the caller's prebuilt images of an age (`max_age_days`).",
        "200 401 403 422 501", fastapi_error},
    {"GET", "/prebuilds/{tag}", AUTH_RUNNER, BODY_NONE, false, handle_runner_prebuilt_get,
        "One prebuilt image.", "200 401 403 404 501", fastapi_error},
    {"DELETE", "/prebuilds/{tag}", AUTH_RUNNER, BODY_NONE, false, handle_runner_prebuilt_delete,
        "Remove a prebuilt image that nothing uses.", "200 401 403 404 409 501", fastapi_error},
    {"GET", "/v1/report", AUTH_KEY, BODY_NONE, false, handle_report,
        "What isolation is enforced on this host and why.", "200 401", NULL},
    {"GET", "/v1/status", AUTH_KEY, BODY_NONE, false, handle_status,
        "What the server does now: queue, memory, and the caller's boxes; an operator sees all "
        "boxes.",
        "200 401", NULL},
    {"GET", "/v1/events", AUTH_KEY, BODY_NONE, false, handle_events,
        "The status as text/event-stream: one event at once, then one when something changed, "
        "at most one a second.",
        "200 401 429", NULL},
    {"GET", "/v1/keys", AUTH_OPERATOR, BODY_NONE, false, handle_keys,
        "Names, roles, quotas and use of all keys; for operators.", "200 401 403", NULL},
    {"POST", "/v1/selftest", AUTH_OPERATOR, BODY_JSON, false, handle_selftest,
        "Attack this server's boxes with the shipped cases and stream the results; for "
        "operators.",
        "200 400 401 403 409 413 415 501", NULL},
    {"GET", "/health", AUTH_NONE, BODY_NONE, true, handle_health,
        "Whether the service works, and its isolation level.", "200 503", NULL},
    {"GET", "/metrics", AUTH_LOCAL, BODY_NONE, true, handle_metrics, "Counters for Prometheus.",
        "200 401", NULL},
    {"GET", "/openapi.json", AUTH_NONE, BODY_NONE, false, handle_openapi, "This description.",
        "200", NULL},
    {"GET", "/version", AUTH_NONE, BODY_NONE, false, handle_version, "The version.", "200",
        NULL},
    {"GET", "/", AUTH_NONE, BODY_NONE, true, handle_root, "`UP!`", "200", NULL},

    /* The Model Context Protocol (docs/mcp.md). */
    {"POST", "/mcp", AUTH_KEY, BODY_JSON, false, handle_mcp_post,
        "A message of the Model Context Protocol; the tools are `execute` and `resume`.",
        "200 202 400 401 403 404 406 413 415 429 503", refuse_mcp},
    {"GET", "/mcp", AUTH_KEY, BODY_NONE, false, handle_mcp_get,
        "The standing stream of an MCP session, or a stream resumed at Last-Event-ID.",
        "200 400 401 403 404 405 406 409", refuse_mcp},
    {"DELETE", "/mcp", AUTH_KEY, BODY_NONE, false, handle_mcp_delete, "End an MCP session.",
        "204 400 401 403 404 405", refuse_mcp},
    {"POST", "/mcp/full", AUTH_KEY, BODY_JSON, false, handle_mcp_post,
        "A message of the Model Context Protocol; the tools are those of the full surface.",
        "200 202 400 401 403 404 406 413 415 429 503", refuse_mcp},
    {"GET", "/mcp/full", AUTH_KEY, BODY_NONE, false, handle_mcp_get, "The same for /mcp/full.",
        "200 400 401 403 404 405 406 409", refuse_mcp},
    {"DELETE", "/mcp/full", AUTH_KEY, BODY_NONE, false, handle_mcp_delete,
        "The same for /mcp/full.", "204 400 401 403 404 405", refuse_mcp},

    /* The Hermes REST engine (docs/compat-rest.md). */
    {"POST", "/execute", AUTH_KEY, BODY_TYPED_JSON, false, handle_execute,
        "Run one file, as the Hermes REST engine does.",
        "200 400 401 413 415 422 429 500 503 507", refuse_execute},
    {"POST", "/execute/", AUTH_KEY, BODY_TYPED_JSON, false, handle_execute, "The same.",
        "200 400 401 413 415 422 429 500 503 507", refuse_execute},
    {"POST", "/v2/execute", AUTH_KEY, BODY_TYPED_JSON, false, handle_execute_files,
        "Run several files, as the Hermes REST engine does.", "200 400 401 413 429 500 503 507",
        refuse_execute_files},
    {"POST", "/v2/execute/", AUTH_KEY, BODY_TYPED_JSON, false, handle_execute_files,
        "The same.", "200 400 401 413 429 500 503 507", refuse_execute_files},
};
const size_t route_count = sizeof(route_table) / sizeof(route_table[0]);

/* Matches a path against a pattern. {name} matches one non-empty component, {path...} at the
 * end matches the whole rest. */
static bool match(const char *pattern, const char *path, size_t len,
    char params[HTTP_MAX_PARAMS][HTTP_PARAM_MAX], const char **ret_rest)
{
    size_t at = 0;
    size_t param = 0;
    while (*pattern) {
        if (*pattern != '{') {
            if (at == len || path[at] != *pattern)
                return false;
            at++;
            pattern++;
            continue;
        }
        if (str_eq(pattern, "{path...}")) {
            *ret_rest = path + at;
            return at < len;
        }
        size_t begin = at;
        while (at < len && path[at] != '/')
            at++;
        size_t size = at - begin;
        if (size == 0 || size >= HTTP_PARAM_MAX || param == HTTP_MAX_PARAMS)
            return false;
        memcpy(params[param], path + begin, size);
        params[param++][size] = '\0';
        pattern += strcspn(pattern, "}") + 1;
    }
    return at == len;
}

const struct route *route_find(const char *method, const char *path, size_t path_len,
    char params[HTTP_MAX_PARAMS][HTTP_PARAM_MAX], const char **ret_rest, char *ret_allow,
    size_t allow_size)
{
    size_t used = 0;
    const char *found = NULL; /* the first that matches: a fixed path, else one with members */
    *ret_rest = NULL;
    ret_allow[0] = '\0';
    for (size_t i = 0; i < route_count; i++) {
        const struct route *route = &route_table[i];
        if ((found && !str_eq(route->path, found)) ||
            !match(route->path, path, path_len, params, ret_rest))
            continue;
        found = route->path;
        if (str_eq(route->method, method))
            return route;
        int n = snprintf(ret_allow + used, allow_size - used, "%s%s%s", used ? ", " : "",
            route->method, str_eq(route->method, "GET") ? ", HEAD" : "");
        used += n > 0 && (size_t)n < allow_size - used ? (size_t)n : 0;
    }
    return NULL;
}
