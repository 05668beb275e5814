/* SPDX-License-Identifier: Apache-2.0 */

/* /v1/sessions: live interpreters and shells. A session of another key is answered exactly like
 * one that does not exist. exec.c has the handlers that run code. */

#include "http/v1/sessions.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "http/routes.h"
#include "service/image.h"
#include "session/decode.h"
#include "json/body.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void reply_value(struct http_reply *reply, int status, json_t *value)
{
    char *text = json_dumps(value, JSON_COMPACT | RESULT_JSON_FLAGS);
    json_decref(value);
    reply_json(reply, status, text, text ? strlen(text) : 0);
}

struct session *find_session(struct http_request *req, struct err *err)
{
    struct session *s = session_find(req->state->sessions, req->params[0], req->owner);
    if (s)
        (void)snprintf(req->run_id, sizeof(req->run_id), "%s", session_id(s));
    else
        (void)session_not_found(req->params[0], err);
    return s;
}

int refuse_lost(struct session *s, struct http_reply *reply, int r, const struct err *err)
{
    if (err->code != ERR_CONFLICT || !session_is_lost(s))
        return r;
    reply_value(reply, err_table[err->code].http_status,
        json_pack("{s:o, s:b, s:o}", "error", json_error(err), "state_lost", 1, "session",
            session_json(s)));
    return 0;
}

int handle_session_create(struct http_request *req, struct http_reply *reply, struct err *err)
{
    struct state *state = req->state;
    struct session_spec spec;
    struct session *s = NULL;
    json_t *body = NULL;
    char location[ID_MAX + 16];
    int r = json_run_parse(req->body.data ? req->body.data : "", req->body.len, &body, err);
    if (r < 0)
        return r;
    r = json_session_decode(body, &state->runtimes, &state->config, &spec, err);
    json_decref(body);
    if (r == 0)
        r = service_session_image(state, req->owner, &spec, err);
    int cancel_fd = r == 0 ? follow_begin(req, err) : r;
    if (cancel_fd >= 0) {
        r = session_create(state->sessions, &spec, req->owner, cancel_fd, &s, err);
        follow_end(req, cancel_fd);
    }
    session_spec_done(&spec);
    if (!s) {
        return r < 0 ? r : cancel_fd;
    }
    (void)snprintf(req->run_id, sizeof(req->run_id), "%s", session_id(s));
    (void)snprintf(location, sizeof(location), "/v1/sessions/%s", session_id(s));
    reply_header(reply, "Location", location);
    reply_value(reply, 201, session_json(s));
    session_unref(s);
    return 0;
}

int handle_backend_list(struct http_request *req, struct http_reply *reply, struct err *err)
{
    reply_value(reply, 200, session_backends_json(req->state, req->owner));
    return 0;
}

int handle_session_list(struct http_request *req, struct http_reply *reply, struct err *err)
{
    reply_value(reply, 200, sessions_json(req->state->sessions, req->owner));
    return 0;
}

int handle_session_get(struct http_request *req, struct http_reply *reply, struct err *err)
{
    struct session *s = find_session(req, err);
    if (!s)
        return -ENOENT;
    reply_value(reply, 200, session_json(s));
    session_unref(s);
    return 0;
}

int handle_session_change(struct http_request *req, struct http_reply *reply, struct err *err)
{
    struct network_policy *policy = NULL;
    json_t *body = NULL;
    struct session *s = find_session(req, err);
    if (!s)
        return -ENOENT;
    int r = json_run_parse(req->body.data ? req->body.data : "", req->body.len, &body, err);
    if (r == 0)
        r = json_session_change_decode(body, &policy, err);
    json_decref(body);
    if (r == 0)
        r = session_set_network(s, policy, err);
    if (r == 0)
        reply_value(reply, 200, session_json(s));
    else
        r = refuse_lost(s, reply, r, err);
    session_unref(s);
    return r;
}

int handle_session_delete(struct http_request *req, struct http_reply *reply, struct err *err)
{
    struct session *s = find_session(req, err);
    if (!s)
        return -ENOENT;
    session_delete(s);
    session_unref(s);
    reply->status = 204;
    return 0;
}

int handle_session_interrupt(
    struct http_request *req, struct http_reply *reply, struct err *err)
{
    struct session *s = find_session(req, err);
    if (!s)
        return -ENOENT;
    int r = session_interrupt(s, err);
    if (r == 0)
        reply_value(reply, 202, session_json(s));
    else
        r = refuse_lost(s, reply, r, err);
    session_unref(s);
    return r;
}

int handle_session_reset(struct http_request *req, struct http_reply *reply, struct err *err)
{
    struct session *s = find_session(req, err);
    bool files_kept = false;
    if (!s)
        return -ENOENT;
    int cancel_fd = follow_begin(req, err);
    int r = cancel_fd;
    if (cancel_fd >= 0) {
        r = session_reset(s, cancel_fd, &files_kept, err);
        follow_end(req, cancel_fd);
    }
    if (r == 0) {
        json_t *json = session_json(s);
        (void)json_object_set_new(json, "files_kept", json_boolean(files_kept));
        reply_value(reply, 200, json);
    } else {
        r = refuse_lost(s, reply, r, err);
    }
    session_unref(s);
    return r;
}

static int answer_jobs(
    struct http_request *req, const char *kill_id, struct http_reply *reply, struct err *err)
{
    struct session *s = find_session(req, err);
    json_t *jobs = NULL;
    if (!s)
        return -ENOENT;
    int r = session_jobs(s, kill_id, &jobs, err);
    if (r == 0)
        reply_value(reply, 200, json_pack("{s:o}", "jobs", jobs));
    else
        r = refuse_lost(s, reply, r, err);
    session_unref(s);
    return r;
}

int handle_session_jobs(struct http_request *req, struct http_reply *reply, struct err *err)
{
    return answer_jobs(req, NULL, reply, err);
}

int handle_session_variables(
    struct http_request *req, struct http_reply *reply, struct err *err)
{
    struct session *s = find_session(req, err);
    json_t *variables = NULL;
    if (!s)
        return -ENOENT;
    int r = session_variables(s, &variables, err);
    if (r == 0)
        reply_value(reply, 200, variables);
    else
        r = refuse_lost(s, reply, r, err);
    session_unref(s);
    return r;
}

int handle_session_kill_job(struct http_request *req, struct http_reply *reply, struct err *err)
{
    return answer_jobs(req, req->params[1], reply, err);
}
