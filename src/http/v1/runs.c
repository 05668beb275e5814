/* SPDX-License-Identifier: Apache-2.0 */

/* /v1/runs: decode, run, encode. A plain run happens on the connection's own thread; async and
 * streamed ones on a thread of their own, and this connection becomes one of their readers. */

#include "http/v1/events.h"
#include "http/http.h"
#include "http/routes.h"
#include "base/alloc.h"
#include "base/cleanup.h"
#include "run/decode.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int not_found(struct err *err)
{
    return err_set(err, ERR_NOT_FOUND, ENOENT, "there is no such run, or no longer");
}

static struct history_run *find_run(const struct http_request *req)
{
    return history_find(
        req->service->history, req->params[0], service_owner_name(req->service, req->owner));
}

static void on_started(void *context)
{
    history_started(context);
}

/* Runs now and answers with the result. */
static int run_now(
    struct http_request *req, struct json_run *run, struct http_reply *reply, struct err *err)
{
    struct service *s = req->service;
    struct history_run *record;
    struct run_result result;
    size_t len;
    int r = history_add(s->history, req->run_id, service_owner_name(s, req->owner), RUN_SYNC,
        run->encoding, &record, err);
    if (r < 0)
        return r;
    struct run_watch watch = {
        .context = record, .started = on_started, .cancel_fd = history_cancel_fd(record)};
    struct service_call call = {.spec = &run->spec, .owner = req->owner, .watch = &watch};
    run_result_init(&result, 1 << 20);
    memcpy(result.id, req->run_id, sizeof(result.id));
    http_follow(req, watch.cancel_fd);
    r = service_run(s, &call, &result, &reply->retry_after_s, err);
    http_unfollow(req);
    bool failed = r < 0 && result.run.status == RUN_INTERNAL_ERROR;
    if (r == 0 || failed) {
        char *text = service_encode(&result, run->encoding, failed ? err : NULL, &len);
        char *copy = xmalloc(len + 1);
        memcpy(copy, text, len + 1);
        reply_json(reply, failed ? err_table[err->code].http_status : 200, copy, len);
        reply->retry_after_s = 0;
        history_finish(record, result.run.status, text, len);
        r = 0;
    } else {
        history_forget(record);
        if (err->code != ERR_BUSY && err->code != ERR_UNAVAILABLE)
            reply->retry_after_s = 0;
    }
    run_result_done(&result);
    history_unref(record);
    return r;
}

/* Starts it and answers with its id, or with its events. */
static int run_later(struct http_request *req, struct json_run *run, bool stream,
    struct http_reply *reply, struct err *err)
{
    struct service *s = req->service;
    struct history_run *record;
    int r = history_add(s->history, req->run_id, service_owner_name(s, req->owner),
        stream ? RUN_STREAMED : RUN_ASYNC, run->encoding, &record, err);
    if (r < 0)
        return r;
    struct history_run *mine = history_ref(record);
    r = service_run_later(
        s, &run->spec, req->owner, run->encoding, record, &reply->retry_after_s, err);
    if (r < 0) {
        if (err->code != ERR_BUSY && err->code != ERR_UNAVAILABLE)
            reply->retry_after_s = 0;
        history_forget(record);
        history_unref(record);
        history_unref(mine);
        return r;
    }
    reply->retry_after_s = 0;
    if (stream) {
        events_reply(req, mine, 0, reply);
        return 0;
    }
    char *text = xasprintf("{\"id\":\"%s\",\"status\":\"queued\"}", req->run_id);
    char location[ID_MAX + 16];
    (void)snprintf(location, sizeof(location), "/v1/runs/%s", req->run_id);
    reply_header(reply, "Location", location);
    reply_json(reply, 202, text, strlen(text));
    history_unref(mine);
    return 0;
}

int handle_run_create(struct http_request *req, struct http_reply *reply, struct err *err)
{
    json_t *body = NULL;
    struct json_run run;
    int r = json_run_parse(req->body.data ? req->body.data : "", req->body.len, &body, err);
    if (r < 0)
        return r;
    r = json_run_decode(body, &req->service->runtimes, &req->service->config.mounts, &run, err);
    json_decref(body);
    buf_done(&req->body);
    if (r == 0) {
        bool stream = http_accepts(req, "text/event-stream") && !run.is_async;
        id_make("run_", req->run_id);
        run.spec.cache_scope =
            xasprintf("key %s", service_owner_name(req->service, req->owner));
        r = run.is_async || stream ? run_later(req, &run, stream, reply, err)
                                   : run_now(req, &run, reply, err);
    }
    json_run_done(&run);
    return r;
}

int handle_run_get(struct http_request *req, struct http_reply *reply, struct err *err)
{
    struct history_run *run = find_run(req);
    size_t len;
    if (!run)
        return not_found(err);
    char *text = history_answer(run, &len);
    if (text)
        reply_json(reply, 200, text, len);
    history_unref(run);
    return text ? 0 : not_found(err);
}

int handle_run_delete(struct http_request *req, struct http_reply *reply, struct err *err)
{
    struct history_run *run = find_run(req);
    if (!run)
        return not_found(err);
    bool cancelled = history_cancel(run);
    if (cancelled) {
        char *text = xasprintf("{\"id\":\"%s\",\"status\":\"cancelling\"}", history_id(run));
        reply_json(reply, 202, text, strlen(text));
    }
    history_unref(run);
    return cancelled ? 0 : err_set(err, ERR_CONFLICT, EALREADY, "the run is over already");
}
