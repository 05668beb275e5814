/* SPDX-License-Identifier: Apache-2.0 */

/* POST /v1/judge: decode, judge, encode. It can be plain, async or streamed, as /v1/runs. The
 * handlers of /v1/runs also return a judgement's state, cancel it and read its events. */

#include "service/judge.h"
#include "base/alloc.h"
#include "http/http.h"
#include "http/routes.h"
#include "http/v1/events.h"

#include <stdio.h>
#include <string.h>

/* Judges on this thread and replies with the result. */
static int judge_now(struct http_request *req, struct service_judgement *judgement,
    struct http_reply *reply, struct err *err)
{
    struct state *s = req->state;
    struct history_run *record;
    enum run_status status = RUN_INTERNAL_ERROR;
    struct answer *answer = NULL;
    int r = history_add(s->history, req->run_id, state_owner(s, req->owner), RUN_SYNC,
        judgement->judge.encoding, &record, err);
    if (r < 0)
        return r;
    http_follow(req, history_cancel_fd(record));
    r = service_judge(s, judgement, req->owner, record, &answer, &status, err);
    http_unfollow(req);
    bool failed = r < 0 && err->code == ERR_INTERNAL;
    if (failed)
        answer = service_judge_failure(req->run_id, err);
    if (answer) {
        history_finish(record, status, answer);
        reply_answer(reply, failed ? err_table[err->code].http_status : 200, answer);
        r = 0;
    } else {
        history_forget(record);
    }
    history_unref(record);
    return r;
}

/* Starts the judgement and replies with its id or its events. */
static int judge_later(struct http_request *req, struct service_judgement *judgement,
    bool stream, struct http_reply *reply, struct err *err)
{
    struct state *s = req->state;
    struct history_run *record;
    char location[ID_MAX + 16];
    int r = history_add(s->history, req->run_id, state_owner(s, req->owner),
        stream ? RUN_STREAMED : RUN_ASYNC, judgement->judge.encoding, &record, err);
    if (r < 0)
        return r;
    struct history_run *mine = history_ref(record);
    r = service_judge_later(s, judgement, req->owner, record, err);
    if (r < 0) {
        history_forget(record);
        history_unref(record);
        history_unref(mine);
        return r;
    }
    if (stream) {
        events_reply(req, mine, 0, reply);
        return 0;
    }
    char *text = xasprintf("{\"id\":\"%s\",\"status\":\"queued\"}", req->run_id);
    (void)snprintf(location, sizeof(location), "/v1/judge/%s", req->run_id);
    reply_header(reply, "Location", location);
    reply_json(reply, 202, text, strlen(text));
    history_unref(mine);
    return 0;
}

static void set_scope(struct run_spec *spec, const char *owner)
{
    if (spec->runtime)
        spec->cache_scope = xasprintf("key %s", owner);
}

int handle_judge_create(struct http_request *req, struct http_reply *reply, struct err *err)
{
    json_t *body = NULL;
    struct service_judgement judgement;
    const char *owner = state_owner_name(req->state, req->owner);
    const char *text = req->body.data ? req->body.data : "";
    int r = json_run_parse(text, req->body.len, &body, err);
    if (r < 0)
        return r;
    judge_hash(text, req->body.len, judgement.request_hash);
    judgement.bytes = 2 * req->body.len;
    r = json_judge_decode(body, &req->state->runtimes, true, &judgement.judge, err);
    json_decref(body);
    buf_done(&req->body);
    if (r == 0) {
        struct judge_spec *spec = &judgement.judge.spec;
        bool is_async = judgement.judge.is_async;
        bool stream = http_accepts(req, "text/event-stream") && !is_async;
        id_make("jdg_", req->run_id);
        set_scope(&spec->solution, owner);
        set_scope(&spec->checker, owner);
        set_scope(&spec->interactor, owner);
        r = is_async || stream ? judge_later(req, &judgement, stream, reply, err)
                               : judge_now(req, &judgement, reply, err);
    }
    json_judge_done(&judgement.judge);
    return r;
}
