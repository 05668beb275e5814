/* SPDX-License-Identifier: Apache-2.0 */

/* See history.h. Runs are in a hash table by id and in a list by age; finished runs are also in
 * a list of their owner. One lock covers all lists and every run with its events. */

#include "state/history.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"
#include "state/events.h"
#include "state/keys.h"
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
    RUN_COST = 1024, /* what a run without answer weighs */
    STORE_EVERY_MS = 10000,
    LARGE_MS = 60000,
    SMALL_EVENT = 128 << 10,
    EVENT_MAX = 2 << 20,   /* bytes of one event: what all of a run may have */
    STORED_MAX = 64 << 20, /* bytes of one answer: the store needs as much again to write it */
};

/* The runs of one owner. */
struct share {
    struct share *next;
    char name[KEY_NAME_MAX];
    uint64_t bytes;
    size_t count;
    struct history_run *oldest, *newest; /* finished runs */
    struct history_run *large; /* the run whose answer is larger than the bound, or NULL */
};

struct history_run {
    struct history *history;
    struct history_run *bucket_next;
    struct history_run *older, *newer;
    struct share *share;
    struct history_run *share_older, *share_newer;
    unsigned refs; /* one belongs to the table */
    char id[ID_MAX];
    char owner[KEY_NAME_MAX];
    enum run_mode kind;
    enum result_encoding encoding;
    enum run_status status;
    bool is_listed;
    bool is_over;
    bool from_store;
    bool is_large;            /* this run is a user of its answer, not a keeper */
    bool is_stored;           /* the store has the answer, or will have it */
    bool is_shed;             /* its events and answer were dropped */
    int64_t created_ms;       /* since 1970 */
    uint64_t over_at_ms;      /* by clock_ms() */
    uint64_t unread_since_ms; /* by clock_ms(); when the last reader left */
    unsigned readers;
    int cancel_fd;
    struct answer *answer;
    size_t kept_bytes; /* bytes of the answer that count for memory_bytes */
    struct run_events events;
    pthread_cond_t changed;
};

struct history {
    struct history_options options;
    pthread_mutex_t lock;
    struct history_run *buckets[BUCKETS];
    struct history_run *oldest, *newest;
    struct share *shares;
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

static void drop_answer(struct history_run *run)
{
    if (run->is_large || run->from_store)
        answer_release(run->answer);
    else
        answer_drop(run->answer);
    run->answer = NULL;
}

static void run_free(struct history_run *run)
{
    run_events_drop(&run->events);
    drop_answer(run);
    if (run->cancel_fd >= 0)
        (void)close(run->cancel_fd);
    (void)pthread_cond_destroy(&run->changed);
    free(run);
}

static void unref_locked(struct history_run *run)
{
    if (--run->refs == 0)
        run_free(run);
}

/* Adjusts the bytes that a run counts. */
static void count(struct history_run *run, int64_t bytes)
{
    run->history->bytes += (uint64_t)bytes;
    run->share->bytes += (uint64_t)bytes;
}

/* Returns the owner's entry, and makes it if necessary. There are at most as many entries as
 * keys. */
static struct share *share_of(struct history *h, const char *name)
{
    struct share *s = h->shares;
    while (s && !str_eq(s->name, name))
        s = s->next;
    if (!s) {
        s = xcalloc(1, sizeof(*s));
        (void)snprintf(s->name, sizeof(s->name), "%s", name);
        s->next = h->shares;
        h->shares = s;
    }
    return s;
}

/* Adds a finished run to its owner's list. */
static void list_over(struct history_run *run)
{
    struct share *s = run->share;
    run->share_older = s->newest;
    if (s->newest)
        s->newest->share_newer = run;
    else
        s->oldest = run;
    s->newest = run;
}

static void unlist_over(struct history_run *run)
{
    struct share *s = run->share;
    *(run->share_older ? &run->share_older->share_newer : &s->oldest) = run->share_newer;
    *(run->share_newer ? &run->share_newer->share_older : &s->newest) = run->share_older;
    if (s->large == run)
        s->large = NULL;
}

/* Removes a run from the table. Holders of a reference may go on using the run. But readers of
 * events would keep its events and answer for as long as they like, so these are dropped and
 * the readers get -ESTALE. */
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
    run->share->count--;
    if (run->is_over)
        unlist_over(run);
    count(run, -(int64_t)(RUN_COST + run->kept_bytes + run->events.bytes));
    run->is_listed = false;
    if (run->readers) {
        run_events_drop(&run->events);
        drop_answer(run);
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
    for (struct share *s = history->shares, *next; s; s = next) {
        next = s->next;
        free(s);
    }
    (void)pthread_mutex_destroy(&history->lock);
    free(history);
}

/* The owner that has most, among those with a run that can be forgotten. */
static struct share *largest_share(struct history *h, const struct history_run *latest)
{
    bool by_count = h->count > RUNS_MAX;
    struct share *found = NULL;
    for (struct share *s = h->shares; s; s = s->next) {
        bool has_one = s->oldest && (s->oldest != latest || s->oldest->share_newer);
        if (has_one &&
            (!found || (by_count ? s->count > found->count : s->bytes > found->bytes)))
            found = s;
    }
    return found;
}

/* Forgets finished runs while there are too many runs or bytes: the oldest of the owner that
 * has most, so that nobody loses results because of another owner. Keeps `latest`: its readers
 * have not seen it yet, and its size is bounded. */
static void make_room(struct history *h, const struct history_run *latest)
{
    while (h->count > RUNS_MAX || h->bytes > h->options.memory_bytes) {
        struct share *share = largest_share(h, latest);
        if (!share)
            return;
        unlist(h, share->oldest == latest ? share->oldest->share_newer : share->oldest);
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
    run->share = share_of(h, run->owner);
    run->share->count++;
    count(run, RUN_COST);
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

int history_add(struct history *history, const char *id, struct history_owner owner,
    enum run_mode kind, enum result_encoding encoding, struct history_run **ret,
    struct err *err)
{
    struct history_run *run = run_new(history, id, owner.name);
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

static int not_found(struct err *err)
{
    return err_set(err, ERR_NOT_FOUND, ENOENT, "there is no such run, or no longer");
}

static int no_memory(struct err *err)
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
static int find_stored(struct history *h, const char *id, struct history_owner owner,
    struct history_run **ret, struct err *err)
{
    const struct run_asker asker = {
        .name = owner.name, .ledger = h->options.ledger, .index = owner.index};
    struct run_row row;
    int r = h->options.store ? run_store_get_own(h->options.store, id, &asker, &row) : -ENOENT;
    if (r < 0)
        return r == -ENOMEM ? no_memory(err) : not_found(err);
    bool expired = row.finished_ms + (int64_t)h->options.ttl_ms < clock_wall_ms();
    if (row.finished_ms && !expired) {
        struct history_run *run = run_new(h, id, owner.name);
        run->is_over = run->from_store = true;
        run->status = RUN_INTERNAL_ERROR;
        run->answer = row.answer ? take_ptr(row.answer) : lost_answer(id);
        *ret = run;
    } else {
        r = not_found(err);
    }
    run_row_release(&row);
    return r;
}

int history_find(struct history *history, const char *id, struct history_owner owner,
    struct history_run **ret, struct err *err)
{
    struct history_run *run;
    if (strlen(id) >= ID_MAX)
        return not_found(err);
    (void)pthread_mutex_lock(&history->lock);
    for (run = history->buckets[bucket_of(id)]; run; run = run->bucket_next) {
        if (strcmp(run->id, id) == 0)
            break;
    }
    bool is_known = run;
    if (run && !str_eq(run->owner, owner.name))
        run = NULL;
    if (run)
        run->refs++;
    (void)pthread_mutex_unlock(&history->lock);
    if (!is_known)
        return find_stored(history, id, owner, ret, err);
    *ret = run;
    return run ? 0 : not_found(err);
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

/* Drops the oldest event of a run. The last one stays where it is small; a large one, which a
 * value to show can be, goes: the answer will have it. */
static bool shed_event(struct history_run *run)
{
    size_t before = run->events.bytes;
    if (!run_events_shed(&run->events)) {
        if (before <= SMALL_EVENT)
            return false;
        run_events_drop(&run->events);
    }
    count(run, (int64_t)run->events.bytes - (int64_t)before);
    return true;
}

/* Makes room for an event of the run: as make_room() does, but results of an owner that has
 * less than the run's own stay. The run's oldest events go instead. */
static void make_room_for_event(struct history_run *run)
{
    struct history *h = run->history;
    while (h->bytes > h->options.memory_bytes) {
        struct share *share = largest_share(h, run);
        if (share && (share == run->share || share->bytes > run->share->bytes))
            unlist(h, share->oldest);
        else if (!shed_event(run))
            return;
    }
}

/* Adds an event; the lock is held. */
static void add_event(struct history_run *run, const char *name, const char *data)
{
    size_t before = run->events.bytes;
    run_events_add(&run->events, name, data);
    if (run->is_listed) {
        count(run, (int64_t)run->events.bytes - (int64_t)before);
        make_room_for_event(run);
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
    cleanup_free char *note = len > EVENT_MAX ? large_event(len) : NULL;
    (void)pthread_mutex_lock(&run->history->lock);
    add_event(run, name, note ? note : json);
    (void)pthread_mutex_unlock(&run->history->lock);
}

/* The answer that replaces one that is too large to keep. */
static struct answer *large_answer(
    const struct history_run *run, enum run_status status, size_t len)
{
    cleanup_free char *text = xasprintf(
        "{\"id\": \"%s\", \"status\": \"%s\", \"error\": {\"code\": "
        "\"too_large\", \"message\": \"the answer had %zu bytes, more than the server "
        "keeps; ask for less output, or take it when the run ends\"}}",
        run->id, run_status_name(status), len);
    return answer_of_text(text);
}

/* Call without the lock: this may wait for the disk. */
static void store_answer(
    const struct history_run *run, enum run_status status, struct answer *answer)
{
    struct history *h = run->history;
    struct run_row row = {.id = xstrdup(run->id),
        .owner = xstrdup(run->owner),
        .status = xstrdup(run_status_name(status)),
        .created_ms = run->created_ms,
        .finished_ms = clock_wall_ms(),
        .answer = answer_keep(answer)};
    run_store_put_later(
        h->options.store, &row, run->kind == RUN_SYNC ? STORE_WITH_OTHERS : STORE_PROMISED);
}

static void store_result(struct history_run *run, enum run_status status, struct answer *answer)
{
    const struct history_options *o = &run->history->options;
    uint64_t max = o->max_bytes / 2 < STORED_MAX ? o->max_bytes / 2 : STORED_MAX;
    if (!o->store)
        return;
    run->is_stored = answer->len <= max;
    if (run->is_stored) {
        store_answer(run, status, answer);
    } else if (run->kind != RUN_SYNC) { /* this run was promised to the client */
        struct answer *instead = large_answer(run, status, answer->len);
        store_answer(run, status, instead);
        answer_release(instead);
    }
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
            count(run, (int64_t)run->kept_bytes);
        return;
    }
    if (answer_use(answer)) /* cannot fail: the caller is a user */
        run->answer = answer;
    if (!run->is_listed)
        return;
    if (run->share->large)
        unlist(h, run->share->large);
    if (run->kind == RUN_SYNC || (run->is_stored && !run->readers))
        unlist(h, run);
    else
        run->share->large = run;
}

void history_finish(struct history_run *run, enum run_status status, struct answer *answer)
{
    struct history *h = run->history;
    store_result(run, status, answer); /* before any client can ask for it */
    (void)pthread_mutex_lock(&h->lock);
    run->status = status;
    run->is_over = true;
    run->over_at_ms = clock_ms();
    run->events.last_id++;     /* the id of the event `end` */
    close_fd(&run->cancel_fd); /* thousands of finished runs are kept, but none of their
                                  descriptors */
    if (run->is_listed)
        list_over(run);
    keep_answer(run, answer);
    (void)pthread_cond_broadcast(&run->changed);
    make_room(h, run);
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
        r = not_found(err);
    } else if (answer_use(run->answer)) {
        *ret = run->answer;
    } else {
        r = no_memory(err);
    }
    (void)pthread_mutex_unlock(&run->history->lock);
    return r;
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

/* Copies the next piece of the event `end`. The answer can be very large, so it is not copied
 * into an event but read in pieces. */
static int copy_end(const struct history_run *run, uint64_t end_id,
    struct history_cursor *cursor, struct buf *to)
{
    const struct answer *answer = run->answer;
    size_t left = answer->len - cursor->end_at;
    size_t n = left < EVENTS_READ_MAX ? left : EVENTS_READ_MAX;
    if (cursor->end_at == 0 &&
        buf_printf(to, "id: %llu\nevent: end\ndata: ", (unsigned long long)end_id) < 0)
        return -ENOMEM;
    if (buf_append(to, answer->text + cursor->end_at, n) < 0)
        return -ENOMEM;
    cursor->end_at += n;
    if (n < left)
        return 1;
    cursor->after_id = end_id;
    return buf_append(to, "\n\n", 2) < 0 ? -ENOMEM : 0;
}

/* Copies events after the cursor. Call with the lock held. */
static int copy_events(struct history_run *run, struct history_cursor *cursor, struct buf *to)
{
    int r = run_events_copy(&run->events, &cursor->after_id, to);
    if (r != 0)
        return r;
    if (!run->is_over)
        return 1;
    uint64_t end_id = run->from_store ? cursor->after_id + 1 : run->events.last_id;
    return cursor->after_id < end_id ? copy_end(run, end_id, cursor, to) : 0;
}

int history_read(
    struct history_run *run, struct history_cursor *cursor, unsigned wait_ms, struct buf *to)
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
    while (!has_news(run, cursor->after_id) && !h->closed && r != ETIMEDOUT)
        r = pthread_cond_timedwait(&run->changed, &h->lock, &until);
    if (run->is_shed || (run->is_over && !run->answer))
        r = -ESTALE;
    else if (has_news(run, cursor->after_id))
        r = copy_events(run, cursor, to);
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
        unlist(run->history, run);
        return true;
    }
    struct answer *instead = large_answer(run, run->status, run->answer->len);
    drop_answer(run);
    run->is_large = false;
    run->share->large = NULL;
    run->answer = answer_keep(instead);
    run->kept_bytes = instead->len;
    count(run, (int64_t)run->kept_bytes);
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
