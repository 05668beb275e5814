/* SPDX-License-Identifier: Apache-2.0 */

/* Handlers for copies of sessions: forks, checkpoints and rollbacks. */

#include "http/v1/sessions.h"

#include "http/routes.h"
#include "session/decode.h"

#include <errno.h>

int handle_session_fork(struct http_request *req, struct http_reply *reply, struct err *err)
{
    struct fork_result result;
    unsigned count = 1;
    struct session *s = find_session(req, err);
    if (!s)
        return -ENOENT;
    int r = json_fork_decode(req->body.data, req->body.len, &count, err);
    int cancel_fd = r < 0 ? r : follow_begin(req, err);
    if (cancel_fd >= 0) {
        r = session_fork(s, count, cancel_fd, &result, err);
        follow_end(req, cancel_fd);
    }
    if (cancel_fd < 0 || r < 0) {
        r = refuse_lost(s, reply, cancel_fd < 0 ? cancel_fd : r, err);
        session_unref(s);
        return r;
    }
    json_t *list = json_array();
    for (unsigned i = 0; i < count; i++) {
        (void)json_array_append_new(list, session_json(result.copies[i]));
        session_unref(result.copies[i]);
    }
    session_unref(s);
    reply_value(reply, 201,
        json_pack("{s:o, s:s, s:s, s:b}", "sessions", list, "memory",
            result.has_memory ? "copied" : "fresh", "files",
            result.is_whole ? "copied" : "incomplete", "outlives_parent", 1));
    return 0;
}

int handle_session_checkpoint(
    struct http_request *req, struct http_reply *reply, struct err *err)
{
    char name[CHECKPOINT_NAME_MAX + 1];
    json_t *made = NULL;
    struct session *s = find_session(req, err);
    if (!s)
        return -ENOENT;
    int r = json_checkpoint_decode(req->body.data, req->body.len, "name", false, name, err);
    int cancel_fd = r < 0 ? r : follow_begin(req, err);
    if (cancel_fd >= 0) {
        r = session_checkpoint(s, name, cancel_fd, &made, err);
        follow_end(req, cancel_fd);
    }
    if (made) {
        reply_value(reply, 201, made);
    } else {
        r = refuse_lost(s, reply, cancel_fd < 0 ? cancel_fd : r, err);
    }
    session_unref(s);
    return r;
}

int handle_session_checkpoints(
    struct http_request *req, struct http_reply *reply, struct err *err)
{
    struct session *s = find_session(req, err);
    if (!s)
        return -ENOENT;
    reply_value(reply, 200, json_pack("{s:o}", "checkpoints", session_checkpoints(s)));
    session_unref(s);
    return 0;
}

int handle_session_checkpoint_delete(
    struct http_request *req, struct http_reply *reply, struct err *err)
{
    struct session *s = find_session(req, err);
    if (!s)
        return -ENOENT;
    int r = session_checkpoint_delete(s, req->params[1], err);
    if (r == 0)
        reply->status = 204;
    session_unref(s);
    return r;
}

int handle_session_rollback(struct http_request *req, struct http_reply *reply, struct err *err)
{
    char name[CHECKPOINT_NAME_MAX + 1];
    struct session *s = find_session(req, err);
    if (!s)
        return -ENOENT;
    int r =
        json_checkpoint_decode(req->body.data, req->body.len, "checkpoint", true, name, err);
    int cancel_fd = r < 0 ? r : follow_begin(req, err);
    if (cancel_fd >= 0) {
        r = session_rollback(s, name, cancel_fd, err);
        follow_end(req, cancel_fd);
    }
    if (cancel_fd >= 0 && r == 0) {
        reply_value(reply, 200, session_json(s));
    } else {
        r = refuse_lost(s, reply, cancel_fd < 0 ? cancel_fd : r, err);
    }
    session_unref(s);
    return r;
}
