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
    const struct history_entry *entry, struct http_reply *reply, struct err *err)
{
    struct state *s = req->state;
    struct history_run *record;
    enum run_status status = RUN_INTERNAL_ERROR;
    struct answer *answer = NULL;
    int r = call_record(req, entry, &record, err);
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

static int start_judgement(
    struct http_request *req, void *context, struct history_run *record, struct err *err)
{
    return service_judge_later(req->state, context, req->owner, record, err);
}

static void set_scope(const struct http_request *req, struct run_spec *spec)
{
    if (spec->runtime)
        call_scope(req, spec);
}

int handle_judge_create(struct http_request *req, struct http_reply *reply, struct err *err)
{
    json_t *body = NULL;
    struct service_judgement judgement;
    const char *text = req->body.data ? req->body.data : "";
    int r = json_run_parse(text, req->body.len, &body, err);
    if (r < 0)
        return r;
    judge_hash(text, req->body.len, judgement.request_hash);
    judgement.bytes = 2 * req->body.len;
    r = json_judge_decode(
        body, &req->state->runtimes, &req->state->config.mounts, true, &judgement.judge, err);
    json_decref(body);
    buf_done(&req->body);
    if (r == 0) {
        struct judge_spec *spec = &judgement.judge.spec;
        const struct history_entry entry = {.mode = events_mode(req, judgement.judge.is_async),
            .encoding = judgement.judge.encoding,
            .language = spec->solution.runtime->name};
        id_make("jdg_", req->run_id);
        set_scope(req, &spec->solution);
        set_scope(req, &spec->checker);
        set_scope(req, &spec->interactor);
        r = entry.mode == RUN_SYNC ? judge_now(req, &judgement, &entry, reply, err)
                                   : events_later(req, &entry, "/v1/judge/", start_judgement,
                                         &judgement, reply, err);
    }
    json_judge_done(&judgement.judge);
    return r;
}
