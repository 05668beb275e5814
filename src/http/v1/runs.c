/* SPDX-License-Identifier: Apache-2.0 */

/* /v1/runs: decode, run, encode. A plain run happens on the connection's thread. An async or
 * streamed run gets a thread of its own, and a streaming connection reads its events. */

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "http/http.h"
#include "http/routes.h"
#include "http/v1/events.h"
#include "run/decode.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int find_run(const struct http_request *req, struct history_run **ret, struct err *err)
{
    static const struct {
        const char *path;
        const char *prefix;
    } kinds[] = {{"/v1/runs/", "run_"}, {"/v1/runs/", "exe_"}, {"/v1/judge/", "jdg_"}};
    bool fits = false;
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        fits = fits || (str_has_prefix(req->target, kinds[i].path) &&
                           str_has_prefix(req->params[0], kinds[i].prefix));
    if (!fits)
        return history_not_found(req->params[0], err);
    return history_find(
        req->state->history, req->params[0], state_owner(req->state, req->owner), ret, err);
}

/* Runs on this thread and replies with the result. */
static int run_now(struct http_request *req, struct json_run *run,
    const struct history_entry *entry, struct http_reply *reply, struct err *err)
{
    struct state *s = req->state;
    struct history_run *record;
    struct run_result result;
    struct answer *answer = NULL;
    int r = call_record(req, entry, &record, err);
    if (r < 0)
        return r;
    r = call_run(req, &run->spec, record, &result, err);
    bool failed = r < 0 && result.run.status == RUN_INTERNAL_ERROR;
    if (r == 0 || failed) {
        int status = failed ? err_table[err->code].http_status : 200;
        answer = result_answer(
            &result, run->encoding, failed ? err : NULL, s->ledger, req->owner, &req->purse);
        r = answer ? 0 : state_full(err);
        if (result.run.exited)
            history_exited(record, result.run.exit_code);
        run_result_done(&result);
        if (answer) {
            history_finish(record, result.run.status, answer);
            reply_answer(reply, status, answer);
        }
    }
    if (!answer) {
        history_forget(record);
    }
    run_result_done(&result);
    history_unref(record);
    return r;
}

static int start_run(
    struct http_request *req, void *context, struct history_run *record, struct err *err)
{
    struct json_run *run = context;
    call_scope(req, &run->spec);
    int r = run->stdin_open ? history_open_stdin(record, &run->spec.stdin_fd, err) : 0;
    if (r < 0)
        return r;
    return service_run_later(req->state, &run->spec, req->owner, run->encoding, record, err);
}

/* Makes a copy of the body if it is to be kept; the caller is a user of it. A body that is too
 * large is an error only if the client asked. */
static int copy_request(const struct http_request *req, const struct json_run *run,
    struct answer **ret, struct err *err)
{
    bool is_large = req->body.len > REQUEST_KEPT_MAX;
    *ret = NULL;
    if (run->keep_request && is_large)
        return err_set(err, ERR_TOO_LARGE, EFBIG,
            "a request that is kept has at most %d bytes; leave keep_request out",
            REQUEST_KEPT_MAX);
    if (is_large || !(run->keep_request || req->state->config.history_requests))
        return 0;
    *ret = answer_new(req->state->ledger, req->owner, req->body.len, NULL);
    if (!*ret)
        return state_full(err);
    memcpy((*ret)->text, req->body.data, req->body.len);
    return 0;
}

/* Runs it in the way that the client asks for. */
static int run_as_asked(struct http_request *req, struct json_run *run, struct answer *request,
    struct http_reply *reply, struct err *err)
{
    const struct history_entry entry = {.mode = events_mode(req, run->is_async),
        .encoding = run->encoding,
        .language = run->spec.runtime->name,
        .request = request};
    if (run->stdin_open && entry.mode == RUN_SYNC)
        return err_field(
            err, "stdin_open", "stdin_open needs async or Accept: text/event-stream");
    id_make("run_", req->run_id);
    return entry.mode == RUN_SYNC
               ? run_now(req, run, &entry, reply, err)
               : events_later(req, &entry, "/v1/runs/", start_run, run, reply, err);
}

int handle_run_create(struct http_request *req, struct http_reply *reply, struct err *err)
{
    json_t *body = NULL;
    struct json_run run;
    struct answer *request = NULL;
    int r = json_run_parse(req->body.data ? req->body.data : "", req->body.len, &body, err);
    if (r < 0)
        return r;
    r = json_run_decode(body, &req->state->runtimes, &req->state->config.mounts, &run, err);
    json_decref(body);
    if (r == 0)
        r = copy_request(req, &run, &request, err);
    buf_done(&req->body);
    if (r == 0)
        r = run_as_asked(req, &run, request, reply, err);
    answer_release(request);
    json_run_done(&run);
    return r;
}

int handle_run_get(struct http_request *req, struct http_reply *reply, struct err *err)
{
    struct history_run *run = NULL;
    struct answer *answer;
    int r = find_run(req, &run, err);
    if (r < 0)
        return r;
    if ((r = history_answer(run, &answer, err)) == 0)
        reply_answer(reply, 200, answer);
    history_unref(run);
    return r;
}

int handle_run_request(struct http_request *req, struct http_reply *reply, struct err *err)
{
    struct history_run *run = NULL;
    struct answer *request;
    int r = find_run(req, &run, err);
    if (r < 0)
        return r;
    r = history_request(run, state_owner(req->state, req->owner), &request, err);
    if (r == 0)
        reply_answer(reply, 200, request);
    history_unref(run);
    return r;
}

int handle_run_delete(struct http_request *req, struct http_reply *reply, struct err *err)
{
    struct history_run *run = NULL;
    int r = find_run(req, &run, err);
    if (r < 0)
        return r;
    bool cancelled = history_cancel(run);
    if (cancelled) {
        char *text = xasprintf("{\"id\":\"%s\",\"status\":\"cancelling\"}", history_id(run));
        reply_json(reply, 202, text, strlen(text));
    }
    history_unref(run);
    return cancelled ? 0 : err_set(err, ERR_CONFLICT, EALREADY, "the run is over already");
}
