/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The table of routes. To add a route, add a row in routes.c and a handler in a file of its
 * group. */

#include "http/http.h"

enum auth_class {
    AUTH_NONE,
    AUTH_KEY,
    AUTH_OPERATOR, /* a key with `role = operator` */
    AUTH_LOCAL,    /* no key is needed on loopback */
    AUTH_RUNNER,   /* a wrong X-API-Key is 403 */
};

enum body_kind {
    BODY_NONE,       /* a body is ignored up to a small limit */
    BODY_JSON,       /* a body must have a JSON content type, else 415 */
    BODY_TYPED_JSON, /* a missing body or content type is 415 too */
    BODY_ANY,        /* the handler decides */
    BODY_STREAM, /* any size: the handler sets req->sink, possibly before the body has come */
};

/* Fills in the reply to a refused request. */
typedef void http_refusal(struct http_reply *reply, const struct err *err);

struct route {
    const char *method;
    const char *path; /* "/v1/runs/{id}" */
    enum auth_class auth;
    enum body_kind body;
    bool is_quiet; /* logged at level debug */
    http_handler *handle;
    const char *summary;
    const char *answers;  /* "200 400 401": statuses for /openapi.json */
    http_refusal *refuse; /* form of its errors; NULL: reply_error() */
};
extern const struct route route_table[];
extern const size_t route_count;

/* Finds the route of a method and a path of path_len bytes. Fills in params, and *ret_rest with
 * what {path...} matched, or NULL. When there is no route, returns NULL and writes the methods
 * of the path to ret_allow (allow_size bytes), "" when the path is unknown. */
const struct route *route_find(const char *method, const char *path, size_t path_len,
    char params[HTTP_MAX_PARAMS][HTTP_PARAM_MAX], const char **ret_rest, char *ret_allow,
    size_t allow_size);

/* v1/runs.c */
http_handler handle_run_create, handle_run_get, handle_run_request, handle_run_delete;
/* v1/run_list.c, v1/run_stdin.c, v1/events.c */
http_handler handle_run_list, handle_run_stdin, handle_run_events;
/* v1/judge.c */
http_handler handle_judge_create;
/* v1/packages.c */
http_handler handle_session_packages, handle_session_commit;
/* v1/images.c */
http_handler handle_image_create, handle_image_list, handle_image_get, handle_image_delete;
/* v1/image_transfer.c */
http_handler handle_image_import, handle_image_export;
/* v1/sessions.c */
http_handler handle_session_create, handle_backend_list, handle_session_list,
    handle_session_get, handle_session_change, handle_session_delete, handle_session_interrupt,
    handle_session_reset, handle_session_jobs, handle_session_variables,
    handle_session_kill_job;
/* v1/exec.c, v1/terminal.c */
http_handler handle_session_exec, handle_session_tool_results, handle_session_terminal;
/* v1/copies.c */
http_handler handle_session_fork, handle_session_checkpoint, handle_session_checkpoints,
    handle_session_checkpoint_delete, handle_session_rollback;
/* v1/files.c */
http_handler handle_file_get, handle_file_put, handle_file_delete, handle_file_list,
    handle_file_archive;
/* v1/approvals.c, v1/approval_events.c */
http_handler handle_approval_list, handle_approval_get, handle_approval_decide,
    handle_approval_rules, handle_approval_set_rules, handle_approval_grants,
    handle_approval_revoke, handle_approval_log, handle_approval_events;
/* v1/meta.c, openapi.c */
http_handler handle_root, handle_health, handle_version, handle_metrics, handle_runtimes,
    handle_report, handle_openapi;
/* v1/status.c, v1/selftest.c */
http_handler handle_status, handle_events, handle_keys, handle_selftest;
/* mcp.c */
http_handler handle_mcp_post, handle_mcp_get, handle_mcp_delete;
http_refusal refuse_mcp;
/* compat/rest.c */
http_handler handle_execute, handle_execute_files;
http_refusal refuse_execute, refuse_execute_files;
/* compat/runner.c, compat/prebuild.c */
http_handler handle_runner_run, handle_runner_images, handle_runner_prebuild,
    handle_runner_prebuilds, handle_runner_prebuilt_get, handle_runner_prebuilt_delete,
    handle_runner_cleanup;

/* compat/pydantic.c: an error in FastAPI's form, {"detail": message}. */
void fastapi_error(struct http_reply *reply, const struct err *err);
