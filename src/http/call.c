/* SPDX-License-Identifier: Apache-2.0 */

/* See call.h. */

#include "http/call.h"

#include "base/alloc.h"

#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { OUTPUT_MIN = 1 << 20 }; /* bytes of output that a result has room for at first */

int follow_begin(struct http_request *req, struct err *err)
{
    int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (fd < 0)
        return err_set(err, ERR_UNAVAILABLE, errno,
            "the server has no descriptor left for this request; try again later");
    http_follow(req, fd);
    return fd;
}

void follow_end(struct http_request *req, int fd)
{
    http_unfollow(req);
    (void)close(fd);
}

void call_scope(const struct http_request *req, struct run_spec *spec)
{
    spec->cache_scope = xasprintf("key %s", state_owner_name(req->state, req->owner));
}

int call_record(struct http_request *req, const struct history_entry *entry,
    struct history_run **ret, struct err *err)
{
    return history_add(
        req->state->history, req->run_id, state_owner(req->state, req->owner), entry, ret, err);
}

static void on_started(void *record)
{
    history_started(record);
}

static int run(struct http_request *req, struct run_spec *spec, const struct run_watch *watch,
    struct run_result *result, struct err *err)
{
    struct service_call call = {.spec = spec, .owner = req->owner, .watch = watch};
    return service_run(req->state, &call, result, err);
}

int call_run(struct http_request *req, struct run_spec *spec, struct history_run *record,
    struct run_result *result, struct err *err)
{
    struct run_watch watch = {.purse = &req->purse.counts};
    int r;
    if (!record)
        id_make("run_", req->run_id);
    run_result_init(result, OUTPUT_MIN);
    memcpy(result->id, req->run_id, sizeof(result->id));
    call_scope(req, spec);
    if (record) {
        watch.context = record;
        watch.started = on_started;
        watch.cancel_fd = history_cancel_fd(record);
        http_follow(req, watch.cancel_fd);
        r = run(req, spec, &watch, result, err);
        http_unfollow(req);
    } else {
        watch.cancel_fd = follow_begin(req, err);
        if (watch.cancel_fd < 0)
            return watch.cancel_fd;
        r = run(req, spec, &watch, result, err);
        follow_end(req, watch.cancel_fd);
    }
    return r;
}
