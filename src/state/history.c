/* SPDX-License-Identifier: Apache-2.0 */

/* See history.h. Runs lie in a hash table by id and in a list by age; one lock covers both and
 * every run with its events. */

#include "state/history.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"
#include "state/keys.h"
#include "state/events.h"
#include "store/run_store.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

enum {
    BUCKETS = 4096,
    RUNS_MAX = 20000,
    RUN_COST = 512, /* what a run without answer weighs */
    STORE_EVERY_MS = 10000,
};

struct history_run {
    struct history *history;
    struct history_run *bucket_next;
    struct history_run *older, *newer;
    unsigned refs; /* one is the table's */
    char id[ID_MAX];
    char owner[KEY_NAME_MAX];
    enum run_mode kind;
    enum result_encoding encoding;
    enum run_status status;
    bool is_listed;
    bool is_over;
    bool from_store;
    bool is_shed;       /* its events and answer are gone */
    int64_t created_ms; /* since 1970 */
    uint64_t over_at_ms;
    uint64_t unread_since_ms; /* streamed: when the last reader left */
    unsigned readers;
    int cancel_fd;
    char *answer;
    size_t answer_len;
    struct run_events events;
    pthread_cond_t changed;
};

struct history {
    struct history_options options;
    pthread_mutex_t lock;
    struct history_run *buckets[BUCKETS];
    struct history_run *oldest, *newest;
    size_t count;
    uint64_t bytes;
    uint64_t store_expired_ms;
    bool closed;
};

static unsigned bucket_of(const char *id)
{
    unsigned hash = 2166136261u;
    for (; *id; id++)
        hash = (hash ^ (unsigned char)*id) * 16777619u;
    return hash % BUCKETS;
}

struct history *history_new(const struct history_options *options)
{
    struct history *h = xcalloc(1, sizeof(*h));
    h->options = *options;
    (void)pthread_mutex_init(&h->lock, NULL);
    return h;
}

static void run_free(struct history_run *run)
{
    run_events_drop(&run->events);
    if (run->cancel_fd >= 0)
        (void)close(run->cancel_fd);
    (void)pthread_cond_destroy(&run->changed);
    free(run->answer);
    free(run);
}

static void unref_locked(struct history_run *run)
{
    if (--run->refs == 0)
        run_free(run);
}

/* Takes a run out of the table. Whoever holds a reference may go on using it, but not what
 * readers of events would hold for as long as they like: they are told to ask again. */
static void unlist(struct history *h, struct history_run *run)
{
    struct history_run **at = &h->buckets[bucket_of(run->id)];
    while (*at != run)
        at = &(*at)->bucket_next;
    *at = run->bucket_next;
    if (run->older)
        run->older->newer = run->newer;
    else
        h->oldest = run->newer;
    if (run->newer)
        run->newer->older = run->older;
    else
        h->newest = run->older;
    h->count--;
    h->bytes -= RUN_COST + run->answer_len + run->events.bytes;
    run->is_listed = false;
    if (run->readers) {
        run_events_drop(&run->events);
        free(run->answer);
        run->answer = NULL;
        run->is_shed = true;
    }
    unref_locked(run);
}

void history_free(struct history *history)
{
    if (!history)
        return;
    while (history->oldest)
        unlist(history, history->oldest);
    (void)pthread_mutex_destroy(&history->lock);
    free(history);
}

/* Forgets the oldest finished runs while there are too many or too large ones, but not
 * `latest`, however large: its readers have not seen it yet. */
static void make_room(struct history *h, const struct history_run *latest)
{
    struct history_run *run = h->oldest;
    while (run && (h->count > RUNS_MAX || h->bytes > h->options.memory_bytes)) {
        struct history_run *newer = run->newer;
        if (run->is_over && run != latest)
            unlist(h, run);
        run = newer;
    }
}

static struct history_run *run_new(struct history *h, const char *id, const char *owner)
{
    struct history_run *run = xcalloc(1, sizeof(*run));
    run->history = h;
    run->refs = 1;
    run->cancel_fd = -1;
    (void)snprintf(run->id, sizeof(run->id), "%s", id);
    (void)snprintf(run->owner, sizeof(run->owner), "%s", owner);
    run->created_ms = clock_wall_ms();
    run->unread_since_ms = clock_ms();
    pthread_condattr_t attr;
    (void)pthread_condattr_init(&attr);
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&run->changed, &attr);
    (void)pthread_condattr_destroy(&attr);
    return run;
}

static void list(struct history *h, struct history_run *run)
{
    struct history_run **bucket = &h->buckets[bucket_of(run->id)];
    run->bucket_next = *bucket;
    *bucket = run;
    run->older = h->newest;
    if (h->newest)
        h->newest->newer = run;
    else
        h->oldest = run;
    h->newest = run;
    h->count++;
    h->bytes += RUN_COST + run->answer_len;
    run->is_listed = true;
    run->refs++;
}

static int promise(struct history *h, const struct history_run *run, struct err *err)
{
    struct run_row row = {.id = (char *)run->id,
        .owner = (char *)run->owner,
        .status = (char *)"queued",
        .created_ms = run->created_ms};
    if (!h->options.store || run->kind == RUN_SYNC)
        return 0;
    return run_store_put(h->options.store, &row, err);
}

int history_add(struct history *history, const char *id, const char *owner, enum run_mode kind,
    enum result_encoding encoding, struct history_run **ret, struct err *err)
{
    struct history_run *run = run_new(history, id, owner);
    run->kind = kind;
    run->encoding = encoding;
    run->status = RUN_QUEUED;
    int r = promise(history, run, err);
    if (r == 0 && (run->cancel_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) < 0)
        r = err_set(err, ERR_UNAVAILABLE, errno, "no descriptor is left");
    if (r < 0) {
        run_free(run);
        return r;
    }
    (void)pthread_mutex_lock(&history->lock);
    list(history, run);
    make_room(history, run);
    (void)pthread_mutex_unlock(&history->lock);
    *ret = run;
    return 0;
}

/* A finished run from the store, as a record that nobody else sees. */
static struct history_run *find_stored(struct history *h, const char *id, const char *owner)
{
    struct run_row row;
    if (!h->options.store || run_store_get(h->options.store, id, &row) < 0)
        return NULL;
    struct history_run *run = NULL;
    bool expired = row.finished_ms + (int64_t)h->options.ttl_ms < clock_wall_ms();
    if (str_eq(row.owner, owner) && row.finished_ms && !expired) {
        run = run_new(h, id, owner);
        run->is_over = run->from_store = true;
        run->status = RUN_INTERNAL_ERROR;
        run->answer = take_ptr(row.answer);
        run->answer_len = row.answer_len;
        if (!run->answer) {
            run->answer =
                xasprintf("{\"id\": \"%s\", \"status\": \"internal_error\", "
                          "\"exit_code\": null, \"signal\": null, \"limits_hit\": [], "
                          "\"message\": \"the server ended before the run did\", "
                          "\"stdout\": \"\", \"stderr\": \"\"}",
                    id);
            run->answer_len = strlen(run->answer);
        }
    }
    run_row_done(&row);
    return run;
}

struct history_run *history_find(struct history *history, const char *id, const char *owner)
{
    struct history_run *run;
    if (strlen(id) >= ID_MAX)
        return NULL;
    (void)pthread_mutex_lock(&history->lock);
    for (run = history->buckets[bucket_of(id)]; run; run = run->bucket_next) {
        if (strcmp(run->id, id) == 0)
            break;
    }
    bool is_known = run;
    if (run && !str_eq(run->owner, owner))
        run = NULL;
    if (run)
        run->refs++;
    (void)pthread_mutex_unlock(&history->lock);
    return is_known ? run : find_stored(history, id, owner);
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
        unlist(h, run);
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
    unref_locked(run);
    (void)pthread_mutex_unlock(&h->lock);
}

/* Adds an event; the lock is held. */
static void add_event(struct history_run *run, const char *name, const char *data)
{
    size_t before = run->events.bytes;
    run_events_add(&run->events, name, data);
    if (run->is_listed)
        run->history->bytes = run->history->bytes - before + run->events.bytes;
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
    history_started(run); /* its output may come before the spawner's word that it runs */
    cleanup_free char *text = run_events_output(&run->events, run->encoding, stream, data, len);
    if (!text)
        return;
    (void)pthread_mutex_lock(&h->lock);
    add_event(run, stream == STREAM_STDOUT ? "stdout" : "stderr", text);
    (void)pthread_mutex_unlock(&h->lock);
}

void history_event(struct history_run *run, const char *name, const char *json)
{
    if (run->kind == RUN_SYNC)
        return;
    (void)pthread_mutex_lock(&run->history->lock);
    add_event(run, name, json);
    (void)pthread_mutex_unlock(&run->history->lock);
}

static void store_answer(const struct history_run *run, enum run_status status,
    const char *answer, size_t answer_len)
{
    struct history *h = run->history;
    if (!h->options.store)
        return;
    struct run_row row = {.id = xstrdup(run->id),
        .owner = xstrdup(run->owner),
        .status = xstrdup(run_status_name(status)),
        .created_ms = run->created_ms,
        .finished_ms = clock_wall_ms(),
        .answer = xmalloc(answer_len + 1),
        .answer_len = answer_len};
    memcpy(row.answer, answer, answer_len + 1);
    run_store_put_later(
        h->options.store, &row, run->kind == RUN_SYNC ? STORE_WITH_OTHERS : STORE_PROMISED);
}

void history_finish(
    struct history_run *run, enum run_status status, char *answer, size_t answer_len)
{
    struct history *h = run->history;
    store_answer(run, status, answer, answer_len); /* while nobody can take the answer away */
    (void)pthread_mutex_lock(&h->lock);
    run->status = status;
    run->is_over = true;
    run->over_at_ms = clock_ms();
    run->answer = answer;
    run->answer_len = answer_len;
    run->events.last_id++;     /* the id of the event `end` */
    close_fd(&run->cancel_fd); /* thousands of finished runs are kept, and no descriptor */
    if (run->is_listed)
        h->bytes += answer_len;
    (void)pthread_cond_broadcast(&run->changed);
    make_room(h, run);
    (void)pthread_mutex_unlock(&h->lock);
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
    (void)n; /* it is readable already then */
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

char *history_answer(struct history_run *run, size_t *ret_len)
{
    char *text;
    (void)pthread_mutex_lock(&run->history->lock);
    if (run->is_shed) {
        text = NULL;
    } else if (run->is_over) {
        text = xmalloc(run->answer_len + 1);
        memcpy(text, run->answer, run->answer_len + 1);
        *ret_len = run->answer_len;
    } else {
        text = xasprintf(
            "{\"id\": \"%s\", \"status\": \"%s\"}", run->id, run_status_name(run->status));
        *ret_len = strlen(text);
    }
    (void)pthread_mutex_unlock(&run->history->lock);
    return text;
}

const char *history_id(const struct history_run *run)
{
    return run->id;
}

void history_read_begin(struct history_run *run)
{
    (void)pthread_mutex_lock(&run->history->lock);
    run->readers++;
    (void)pthread_mutex_unlock(&run->history->lock);
}

void history_read_end(struct history_run *run)
{
    (void)pthread_mutex_lock(&run->history->lock);
    if (--run->readers == 0)
        run->unread_since_ms = clock_ms();
    (void)pthread_mutex_unlock(&run->history->lock);
}

static bool has_news(const struct history_run *run, uint64_t after_id)
{
    return run->is_over || run->events.last_id > after_id;
}

/* Copies events after *after_id; the lock is held. */
static int copy_events(struct history_run *run, uint64_t *after_id, struct buf *to)
{
    int r = run_events_copy(&run->events, after_id, to);
    if (r != 0)
        return r;
    if (!run->is_over)
        return 1;
    uint64_t end_id = run->from_store ? *after_id + 1 : run->events.last_id;
    if (*after_id < end_id) {
        if (buf_printf(to, "id: %llu\nevent: end\ndata: ", (unsigned long long)end_id) < 0 ||
            buf_append(to, run->answer, run->answer_len) < 0 || buf_append(to, "\n\n", 2) < 0)
            return -EMSGSIZE;
        *after_id = end_id;
    }
    return 0;
}

int history_read(struct history_run *run, uint64_t *after_id, unsigned wait_ms, struct buf *to)
{
    struct history *h = run->history;
    struct timespec until;
    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += wait_ms / 1000;
    until.tv_nsec += (long)(wait_ms % 1000) * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    int r = 0;
    (void)pthread_mutex_lock(&h->lock);
    while (!has_news(run, *after_id) && !h->closed && r != ETIMEDOUT)
        r = pthread_cond_timedwait(&run->changed, &h->lock, &until);
    if (run->is_shed)
        r = -ESTALE;
    else if (has_news(run, *after_id))
        r = copy_events(run, after_id, to);
    else
        r = h->closed ? -ESHUTDOWN : -ETIMEDOUT;
    (void)pthread_mutex_unlock(&h->lock);
    return r;
}

bool history_is_read(struct history_run *run, uint64_t after_id)
{
    (void)pthread_mutex_lock(&run->history->lock);
    bool all = run->is_over && !run->from_store && after_id >= run->events.last_id;
    (void)pthread_mutex_unlock(&run->history->lock);
    return all;
}

void history_tick(struct history *history)
{
    uint64_t now = clock_ms();
    const struct history_options *o = &history->options;
    (void)pthread_mutex_lock(&history->lock);
    for (struct history_run *run = history->oldest, *newer; run; run = newer) {
        newer = run->newer;
        if (run->is_over && now - run->over_at_ms > o->ttl_ms)
            unlist(history, run);
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
