/* SPDX-License-Identifier: Apache-2.0 */

/* See history.h. Adding, finding and finishing runs, and the work of twice a second. */

#include "state/history/internal.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"
#include "store/run_store.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum {
    STORE_EVERY_MS = 10000, /* between two rounds in which the store removes old rows */
    LARGE_MS = 60000,       /* how long a large answer waits for the client of an async run */
};

struct history *history_new(const struct history_options *options)
{
    struct history *h = xcalloc(1, sizeof(*h));
    h->options = *options;
    (void)pthread_mutex_init(&h->lock, NULL);
    return h;
}

void history_free(struct history *history)
{
    if (!history)
        return;
    while (history->oldest)
        kept_unlist(history, history->oldest);
    for (struct share *s = history->shares, *next; s; s = next) {
        next = s->next;
        free(s);
    }
    (void)pthread_mutex_destroy(&history->lock);
    free(history);
}

int history_add(struct history *history, const char *id, struct history_owner owner,
    const struct history_entry *entry, struct history_run **ret, struct err *err)
{
    struct history_run *run = kept_new(history, id, owner.name);
    run->kind = entry->mode;
    run->encoding = entry->encoding;
    run->language = entry->language ? entry->language : "";
    if (entry->request &&
        answer_use(entry->request)) /* cannot fail: the caller holds a reference */
        run->request = entry->request;
    run->status = RUN_QUEUED;
    int r = stored_promise(history, run, err);
    if (r == 0 && (run->cancel_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) < 0)
        r = err_set(err, ERR_UNAVAILABLE, errno,
            "the server has no descriptor left for this run; try again later");
    if (r < 0) {
        kept_free(run);
        return r;
    }
    (void)pthread_mutex_lock(&history->lock);
    kept_list(history, run);
    kept_make_room(history, run);
    (void)pthread_mutex_unlock(&history->lock);
    *ret = run;
    return 0;
}

int history_find(struct history *history, const char *id, struct history_owner owner,
    struct history_run **ret, struct err *err)
{
    if (strlen(id) >= ID_MAX)
        return history_not_found(id, err);
    (void)pthread_mutex_lock(&history->lock);
    struct history_run *run = kept_find(history, id);
    bool is_known = run;
    if (run && !str_eq(run->owner, owner.name))
        run = NULL;
    if (run)
        run->refs++;
    (void)pthread_mutex_unlock(&history->lock);
    if (!is_known)
        return stored_find(history, id, owner, ret, err);
    *ret = run;
    return run ? 0 : history_not_found(id, err);
}

struct history_run *history_ref(struct history_run *run)
{
    (void)pthread_mutex_lock(&run->history->lock);
    run->refs++;
    (void)pthread_mutex_unlock(&run->history->lock);
    return run;
}

void history_forget(struct history_run *run)
{
    struct history *h = run->history;
    (void)pthread_mutex_lock(&h->lock);
    if (run->is_listed)
        kept_unlist(h, run);
    (void)pthread_mutex_unlock(&h->lock);
    if (h->options.store && run->kind != RUN_SYNC)
        run_store_remove(h->options.store, run->id);
}

void history_unref(struct history_run *run)
{
    if (!run)
        return;
    struct history *h = run->history;
    (void)pthread_mutex_lock(&h->lock);
    kept_unref(run);
    (void)pthread_mutex_unlock(&h->lock);
}

/* Adds an event; the lock is held. */
static void add_event(struct history_run *run, const char *name, const char *data)
{
    size_t before = run->events.bytes;
    uint64_t t_ms = run->started_at_ms ? clock_ms() - run->started_at_ms : 0;
    run_events_add(&run->events, name, data, t_ms);
    if (run->is_listed) {
        kept_count_events(run, (int64_t)run->events.bytes - (int64_t)before);
        kept_make_event_room(run);
    }
    (void)pthread_cond_broadcast(&run->changed);
}

void history_started(struct history_run *run)
{
    struct history *h = run->history;
    char data[128];
    (void)snprintf(data, sizeof(data), "{\"id\": \"%s\", \"status\": \"running\"}", run->id);
    (void)pthread_mutex_lock(&h->lock);
    if (run->status == RUN_QUEUED) {
        run->status = RUN_RUNNING;
        run->started_at_ms = clock_ms();
        if (run->kind != RUN_SYNC)
            add_event(run, "start", data);
    }
    (void)pthread_mutex_unlock(&h->lock);
}

void history_output(
    struct history_run *run, enum run_stream stream, const char *data, size_t len)
{
    struct history *h = run->history;
    if (run->kind == RUN_SYNC)
        return;
    history_started(run); /* output may arrive before the spawner's EVENT_STARTED */
    cleanup_free char *text = run_events_output(&run->events, run->encoding, stream, data, len);
    if (!text)
        return;
    (void)pthread_mutex_lock(&h->lock);
    add_event(run, stream == STREAM_STDOUT ? "stdout" : "stderr", text);
    (void)pthread_mutex_unlock(&h->lock);
}

/* The note that replaces an event which is too large to be kept. */
static char *large_event(size_t len)
{
    return xasprintf("{\"error\": {\"code\": \"too_large\", \"message\": \"this event had %zu "
                     "bytes, more than a stream keeps; see the answer\"}}",
        len);
}

void history_event(struct history_run *run, const char *name, const char *json)
{
    if (run->kind == RUN_SYNC)
        return;
    size_t len = strlen(json);
    cleanup_free char *note = len > EVENTS_MAX ? large_event(len) : NULL;
    (void)pthread_mutex_lock(&run->history->lock);
    add_event(run, name, note ? note : json);
    (void)pthread_mutex_unlock(&run->history->lock);
}

/* One answer may take at most half of the memory bound. A larger answer stays counted in the
 * ledger, for clients that wait for it. Each owner can have one such answer. The run is
 * forgotten at once when only its own client wanted the answer (RUN_SYNC), or when the store
 * has it and there is no reader. */
static void keep_answer(struct history_run *run, struct answer *answer)
{
    struct history *h = run->history;
    run->is_large = answer->len > h->options.memory_bytes / 2;
    if (!run->is_large) {
        run->answer = answer_keep(answer);
        run->kept_bytes = answer->len;
        if (run->is_listed)
            kept_count(run, (int64_t)run->kept_bytes);
        return;
    }
    if (answer_use(answer)) /* cannot fail: the caller is a user */
        run->answer = answer;
    if (!run->is_listed)
        return;
    if (run->share->large)
        kept_unlist(h, run->share->large);
    if (run->kind == RUN_SYNC || (run->is_stored && !run->readers))
        kept_unlist(h, run);
    else
        run->share->large = run;
}

void history_exited(struct history_run *run, int exit_code)
{
    (void)pthread_mutex_lock(&run->history->lock);
    run->exited = true;
    run->exit_code = exit_code;
    (void)pthread_mutex_unlock(&run->history->lock);
}

/* Notes when the run ended. */
static void note_end(struct history_run *run)
{
    (void)pthread_mutex_lock(&run->history->lock);
    run->finished_ms = clock_wall_ms();
    if (run->started_at_ms)
        run->wall_ms = (int64_t)(clock_ms() - run->started_at_ms);
    (void)pthread_mutex_unlock(&run->history->lock);
}

void history_finish(struct history_run *run, enum run_status status, struct answer *answer)
{
    struct history *h = run->history;
    note_end(run);
    stored_put(run, status, answer); /* before any client can ask for it */
    (void)pthread_mutex_lock(&h->lock);
    run->status = status;
    run->is_over = true;
    run->over_at_ms = clock_ms();
    run->events.last_id++;     /* the id of the event `end` */
    close_fd(&run->cancel_fd); /* thousands of finished runs are kept, but none of their
                                  descriptors */
    stdin_close(run);
    kept_keep_request(run);
    if (run->is_listed)
        kept_list_over(run);
    keep_answer(run, answer);
    (void)pthread_cond_broadcast(&run->changed);
    kept_make_room(h, run);
    (void)pthread_mutex_unlock(&h->lock);
}

bool history_is_quiet(const struct history_run *run)
{
    return run->kind == RUN_SYNC;
}

int history_cancel_fd(const struct history_run *run)
{
    return run->cancel_fd;
}

static bool cancel_locked(struct history_run *run)
{
    const uint64_t one = 1;
    if (run->is_over || run->cancel_fd < 0)
        return false;
    ssize_t n = write(run->cancel_fd, &one, sizeof(one));
    (void)n; /* a failed write means that it is readable already */
    return true;
}

bool history_cancel(struct history_run *run)
{
    (void)pthread_mutex_lock(&run->history->lock);
    bool cancelled = cancel_locked(run);
    (void)pthread_mutex_unlock(&run->history->lock);
    return cancelled;
}

void history_cancel_all(struct history *history)
{
    (void)pthread_mutex_lock(&history->lock);
    for (struct history_run *run = history->oldest; run; run = run->newer)
        (void)cancel_locked(run);
    (void)pthread_mutex_unlock(&history->lock);
}

int history_answer(struct history_run *run, struct answer **ret, struct err *err)
{
    int r = 0;
    (void)pthread_mutex_lock(&run->history->lock);
    if (!run->is_over) {
        cleanup_free char *text = xasprintf(
            "{\"id\": \"%s\", \"status\": \"%s\"}", run->id, run_status_name(run->status));
        *ret = answer_of_text(text);
    } else if (!run->answer) {
        r = history_not_found(run->id, err);
    } else if (answer_use(run->answer)) {
        *ret = run->answer;
    } else {
        r = history_no_memory(err);
    }
    (void)pthread_mutex_unlock(&run->history->lock);
    return r;
}

const char *history_id(const struct history_run *run)
{
    return run->id;
}

/* A large answer without readers uses up what its owner may hold. So it is kept only until a
 * reader had time to come back, or the client of an async run had time to ask. Then the stored
 * copy or a short notice replaces it. Returns true when the run is forgotten. */
static bool let_large_go(struct history_run *run, uint64_t now)
{
    uint64_t since =
        run->over_at_ms > run->unread_since_ms ? run->over_at_ms : run->unread_since_ms;
    uint64_t grace_ms =
        run->kind == RUN_ASYNC ? LARGE_MS : run->history->options.resume_grace_ms;
    if (!run->is_listed || (!run->is_stored && now - since < grace_ms))
        return false;
    if (run->is_stored) {
        kept_unlist(run->history, run);
        return true;
    }
    struct answer *instead = stored_notice(run, run->status, run->answer->len);
    kept_drop_answer(run);
    run->is_large = false;
    run->share->large = NULL;
    run->answer = answer_keep(instead);
    run->kept_bytes = instead->len;
    kept_count(run, (int64_t)run->kept_bytes);
    answer_release(instead);
    return false;
}

void history_tick(struct history *history)
{
    uint64_t now = clock_ms();
    const struct history_options *o = &history->options;
    (void)pthread_mutex_lock(&history->lock);
    for (struct history_run *run = history->oldest, *newer; run; run = newer) {
        newer = run->newer;
        if (run->is_large && !run->readers && let_large_go(run, now))
            continue;
        if (run->is_over && now - run->over_at_ms > o->ttl_ms)
            kept_unlist(history, run);
        else if (!run->is_over && run->kind == RUN_STREAMED && run->readers == 0 &&
                 now - run->unread_since_ms > o->resume_grace_ms)
            (void)cancel_locked(run);
    }
    bool expire = o->store && now - history->store_expired_ms > STORE_EVERY_MS;
    if (expire)
        history->store_expired_ms = now;
    (void)pthread_mutex_unlock(&history->lock);
    if (expire)
        run_store_expire(o->store, clock_wall_ms() - (int64_t)o->ttl_ms, o->max_bytes);
}

void history_close(struct history *history)
{
    (void)pthread_mutex_lock(&history->lock);
    history->closed = true;
    for (struct history_run *run = history->oldest; run; run = run->newer)
        (void)pthread_cond_broadcast(&run->changed);
    (void)pthread_mutex_unlock(&history->lock);
}

void history_get_size(struct history *history, size_t *ret_runs, uint64_t *ret_bytes)
{
    (void)pthread_mutex_lock(&history->lock);
    *ret_runs = history->count;
    *ret_bytes = history->bytes;
    (void)pthread_mutex_unlock(&history->lock);
}
