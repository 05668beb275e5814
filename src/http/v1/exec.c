/* SPDX-License-Identifier: Apache-2.0 */

/* POST /v1/sessions/{id}/exec and answers to tool calls. A plain exec runs on the connection's
 * thread. A streamed exec runs on a thread of its own: a client that reads slowly must not
 * delay its deadlines. */

#include "service/exec.h"
#include "base/alloc.h"
#include "http/routes.h"
#include "http/v1/events.h"
#include "http/v1/sessions.h"
#include "session/decode.h"
#include "json/read.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Takes the session, and gives up when the client leaves. */
static int begin(struct http_request *req, struct session *s, const struct exec_spec *spec,
    int cancel_fd, struct http_reply *reply, struct err *err)
{
    int r = session_begin(s, spec, cancel_fd, err);
    if (r == -ECANCELED)
        r = err_set(err, ERR_CONFLICT, ECANCELED,
            "the client disconnected before the session could answer");
    return r;
}

/* Replies with the result. When Hermes failed (r < 0), the reply has an error status and
 * contains what there is of the result. */
static int reply_result(
    struct http_reply *reply, struct exec_result *result, int r, struct err *err)
{
    struct answer *answer = exec_result_answer(result, r < 0 ? err : NULL);
    exec_result_done(result);
    if (!answer)
        return state_full(err);
    reply_answer(reply, r < 0 ? err_table[err->code].http_status : 200, answer);
    return 0;
}

static int exec_now(struct http_request *req, struct session *s, const struct exec_spec *spec,
    struct http_reply *reply, struct err *err)
{
    struct exec_watch watch = {.cancel_fd = follow_begin(req, err)};
    struct exec_result result;
    if (watch.cancel_fd < 0)
        return watch.cancel_fd;
    int r = begin(req, s, spec, watch.cancel_fd, reply, err);
    if (r < 0) {
        follow_end(req, watch.cancel_fd);
        return refuse_lost(s, reply, r, err);
    }
    r = session_exec(s, spec, &watch, &result, err);
    follow_end(req, watch.cancel_fd);
    return reply_result(reply, &result, r, err);
}

/* The arguments of start_exec(). */
struct exec_start {
    struct session *s;
    struct exec_spec *spec;
};

static int start_exec(
    struct http_request *req, void *context, struct history_run *record, struct err *err)
{
    const struct exec_start *start = context;
    int r = service_exec_later(
        req->state, session_ref(start->s), req->owner, start->spec, record, err);
    if (r < 0)
        session_unref(start->s);
    return r;
}

static int exec_stream(struct http_request *req, struct session *s, struct exec_spec *spec,
    struct http_reply *reply, struct err *err)
{
    struct exec_start start = {s, spec};
    int cancel_fd = follow_begin(req, err);
    if (cancel_fd < 0)
        return cancel_fd;
    int r = begin(req, s, spec, cancel_fd, reply, err);
    follow_end(req, cancel_fd);
    if (r < 0)
        return refuse_lost(s, reply, r, err);
    const struct history_entry entry = {.mode = RUN_STREAMED, .language = session_language(s)};
    id_make("exe_", req->run_id);
    r = events_later(req, &entry, "", start_exec, &start, reply, err);
    if (r < 0)
        session_abandon(s);
    return r;
}

int handle_session_exec(struct http_request *req, struct http_reply *reply, struct err *err)
{
    bool stream = http_accepts(req, "text/event-stream");
    struct exec_spec spec;
    json_t *body = NULL;
    struct session *s = find_session(req, err);
    if (!s)
        return -ENOENT;
    int r = json_run_parse(req->body.data ? req->body.data : "", req->body.len, &body, err);
    if (r == 0) {
        r = json_exec_decode(body, &req->state->config, stream, &spec, err);
        json_decref(body);
        buf_done(&req->body);
        if (r == 0)
            r = stream ? exec_stream(req, s, &spec, reply, err)
                       : exec_now(req, s, &spec, reply, err);
        exec_spec_done(&spec);
    }
    session_unref(s);
    return r;
}

int handle_session_tool_results(
    struct http_request *req, struct http_reply *reply, struct err *err)
{
    struct session *s = find_session(req, err);
    json_t *body = NULL;
    size_t weight = 0;
    if (!s)
        return -ENOENT;
    int r = json_run_parse(req->body.data ? req->body.data : "", req->body.len, &body, err);
    if (r == 0)
        r = json_tool_result_check(body, req->body.len, err);
    if (r == 0)
        r = json_read_weigh(req->body.data, req->body.len, &weight, err);
    if (r == 0)
        r = session_answer_tool(s, body, weight, err);
    if (r == 0)
        reply->status = 204;
    json_decref(body);
    session_unref(s);
    return r;
}
