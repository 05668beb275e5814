/* SPDX-License-Identifier: Apache-2.0 */

/* See internal.h. */

#include "state/history/internal.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "store/run_store.h"

#include <errno.h>
#include <stdlib.h>

enum {
    STORED_MAX = 64 << 20
}; /* bytes of one answer: the store needs as much again to write it */

struct run_row stored_row(const struct history_run *run, enum run_status status)
{
    return (struct run_row){.id = (char *)run->id,
        .owner = (char *)run->owner,
        .status = (char *)run_status_name(status),
        .language = (char *)run->language,
        .created_ms = run->created_ms,
        .finished_ms = run->finished_ms,
        .wall_ms = run->wall_ms,
        .exited = run->exited,
        .exit_code = run->exit_code,
        .request = run->request};
}

int stored_promise(struct history *h, const struct history_run *run, struct err *err)
{
    const struct run_row row = stored_row(run, RUN_QUEUED);
    if (!h->options.store || run->kind == RUN_SYNC)
        return 0;
    return run_store_put(h->options.store, &row, err);
}

int history_not_found(const char *id, struct err *err)
{
    return err_set(err, ERR_NOT_FOUND, ENOENT,
        "run %.64s not found; it may have expired or been deleted", id);
}

int history_no_memory(struct err *err)
{
    return err_set(err, ERR_UNAVAILABLE, ENOMEM,
        "the server has no memory left for this answer; try again later");
}

/* The answer of a run that the previous server did not finish. */
static struct answer *lost_answer(const char *id)
{
    cleanup_free char *text = xasprintf("{\"id\": \"%s\", \"status\": \"internal_error\", "
                                        "\"exit_code\": null, \"signal\": null, "
                                        "\"limits_hit\": [], \"message\": "
                                        "\"the server ended before the run did\", "
                                        "\"stdout\": \"\", \"stderr\": \"\"}",
        id);
    return answer_of_text(text);
}

/* Makes a record of a finished run from the store. Only the caller sees this record. */
int stored_find(struct history *h, const char *id, struct history_owner owner,
    struct history_run **ret, struct err *err)
{
    const struct run_asker asker = {
        .name = owner.name, .ledger = h->options.ledger, .index = owner.index};
    struct run_row row;
    int r = h->options.store ? run_store_get_own(h->options.store, id, &asker, &row) : -ENOENT;
    if (r < 0)
        return r == -ENOMEM ? history_no_memory(err) : history_not_found(id, err);
    bool expired = row.finished_ms + (int64_t)h->options.ttl_ms < clock_wall_ms();
    if (row.finished_ms && !expired) {
        struct history_run *run = kept_new(h, id, owner.name);
        run->is_over = run->from_store = true;
        run->status = RUN_INTERNAL_ERROR;
        run->wall_ms = row.wall_ms;
        run->answer = row.answer ? take_ptr(row.answer) : lost_answer(id);
        *ret = run;
    } else {
        r = history_not_found(id, err);
    }
    run_row_release(&row);
    return r;
}

int history_request(
    struct history_run *run, struct history_owner owner, struct answer **ret, struct err *err)
{
    struct history *h = run->history;
    const struct run_asker asker = {
        .name = owner.name, .ledger = h->options.ledger, .index = owner.index};
    int r = -ENOENT;
    (void)pthread_mutex_lock(&h->lock);
    if (run->request) {
        *ret = run->request;
        r = answer_use(*ret) ? 0 : -ENOMEM;
    }
    (void)pthread_mutex_unlock(&h->lock);
    if (run->from_store)
        r = run_store_get_request(h->options.store, run->id, &asker, ret);
    if (r == -ENOMEM)
        return history_no_memory(err);
    return r == 0 ? 0
                  : err_set(err, ERR_NOT_FOUND, ENOENT,
                        "the request of this run was not kept; ask for it with keep_request");
}

struct answer *stored_notice(const struct history_run *run, enum run_status status, size_t len)
{
    cleanup_free char *text = xasprintf(
        "{\"id\": \"%s\", \"status\": \"%s\", \"error\": {\"code\": "
        "\"too_large\", \"message\": \"the answer had %zu bytes, more than the server "
        "keeps; ask for less output, or take it when the run ends\"}}",
        run->id, run_status_name(status), len);
    return answer_of_text(text);
}

static void store_answer(
    const struct history_run *run, enum run_status status, struct answer *answer)
{
    struct history *h = run->history;
    struct run_row row = stored_row(run, status);
    row.id = xstrdup(row.id);
    row.owner = xstrdup(row.owner);
    row.status = xstrdup(row.status);
    row.language = xstrdup(row.language);
    row.answer = answer_keep(answer);
    if (row.request)
        (void)answer_keep(row.request);
    run_store_put_later(
        h->options.store, &row, run->kind == RUN_SYNC ? STORE_WITH_OTHERS : STORE_PROMISED);
}

void stored_put(struct history_run *run, enum run_status status, struct answer *answer)
{
    const struct history_options *o = &run->history->options;
    uint64_t max = o->max_bytes / 2 < STORED_MAX ? o->max_bytes / 2 : STORED_MAX;
    if (!o->store)
        return;
    run->is_stored = answer->len <= max;
    if (run->is_stored) {
        store_answer(run, status, answer);
    } else if (run->kind != RUN_SYNC) { /* this run was promised to the client */
        struct answer *instead = stored_notice(run, status, answer->len);
        store_answer(run, status, instead);
        answer_release(instead);
    }
}
