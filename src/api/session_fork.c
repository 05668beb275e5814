/* SPDX-License-Identifier: Apache-2.0 */

/* Copies of sessions. */

#include "api/sessions.h"

#include "api/routes.h"
#include "core/json_session.h"

#include <errno.h>

int handle_session_fork(struct http_request *req, struct http_reply *reply, struct err *err)
{
    struct session *copies[SESSION_FORKS_MAX];
    unsigned count = 1;
    struct session *s = find_session(req, err);
    if (!s)
        return -ENOENT;
    int r = json_fork_decode(req->body.data, req->body.len, &count, err);
    int cancel_fd = r < 0 ? r : follow_begin(req, err);
    if (cancel_fd >= 0) {
        r = session_fork(s, count, cancel_fd, copies, &reply->retry_after_s, err);
        follow_end(req, cancel_fd);
    }
    if (cancel_fd < 0 || r < 0) {
        r = refuse_lost(s, reply, cancel_fd < 0 ? cancel_fd : r, err);
        session_unref(s);
        return r;
    }
    json_t *list = json_array();
    for (unsigned i = 0; i < count; i++) {
        (void)json_array_append_new(list, session_json(copies[i]));
        session_unref(copies[i]);
    }
    session_unref(s);
    reply->retry_after_s = 0;
    reply_value(reply, 201,
        json_pack("{s:o, s:s, s:s, s:b}", "sessions", list, "memory", "copied", "files",
            "copied", "outlives_parent", 1));
    return 0;
}
