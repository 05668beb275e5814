/* SPDX-License-Identifier: Apache-2.0 */

/* See internal.h. */

#include "state/history/internal.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/str.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    RUNS_MAX = 20000,
    RUN_COST = 1024,         /* bytes that a run counts besides its answer and events */
    SMALL_EVENT = 128 << 10, /* bytes; the last event of a run stays when it is not larger */
};

static unsigned bucket_of(const char *id)
{
    unsigned hash = 2166136261u;
    for (; *id; id++)
        hash = (hash ^ (unsigned char)*id) * 16777619u;
    return hash % HISTORY_BUCKETS;
}

void kept_drop_answer(struct history_run *run)
{
    if (run->is_large || run->from_store)
        answer_release(run->answer);
    else
        answer_drop(run->answer);
    run->answer = NULL;
}

void kept_drop_request(struct history_run *run)
{
    if (run->is_over)
        answer_drop(run->request);
    else
        answer_release(run->request);
    run->request = NULL;
}

static size_t request_bytes(const struct history_run *run)
{
    return run->is_over && run->request ? run->request->len : 0;
}

void kept_keep_request(struct history_run *run)
{
    if (!run->request)
        return;
    answer_release(answer_keep(run->request));
    if (run->is_listed)
        kept_count(run, (int64_t)request_bytes(run));
}

void kept_free(struct history_run *run)
{
    run_events_drop(&run->events);
    kept_drop_answer(run);
    kept_drop_request(run);
    if (run->cancel_fd >= 0)
        (void)close(run->cancel_fd);
    stdin_close(run);
    (void)pthread_cond_destroy(&run->changed);
    free(run);
}

void kept_unref(struct history_run *run)
{
    if (--run->refs == 0)
        kept_free(run);
}

struct history_run *kept_find(const struct history *h, const char *id)
{
    struct history_run *run = h->buckets[bucket_of(id)];
    while (run && strcmp(run->id, id) != 0)
        run = run->bucket_next;
    return run;
}

void kept_count(struct history_run *run, int64_t bytes)
{
    run->history->bytes += (uint64_t)bytes;
    run->share->bytes += (uint64_t)bytes;
}

void kept_count_events(struct history_run *run, int64_t bytes)
{
    kept_count(run, bytes);
    if (!run->is_over)
        run->share->live_bytes += (uint64_t)bytes;
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

void kept_list_over(struct history_run *run)
{
    struct share *s = run->share;
    s->live_bytes -= run->events.bytes;
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

void kept_unlist(struct history *h, struct history_run *run)
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
    kept_count(run, -(int64_t)(RUN_COST + run->kept_bytes + request_bytes(run)));
    kept_count_events(run, -(int64_t)run->events.bytes);
    run->is_listed = false;
    if (run->readers) {
        run_events_drop(&run->events);
        kept_drop_answer(run);
        kept_drop_request(run);
        run->is_shed = true;
    }
    kept_unref(run);
}

/* The oldest finished run of the owner, without `latest`. */
static struct history_run *oldest_over(const struct share *s, const struct history_run *latest)
{
    /* kept_unlist() takes a run out of this list before it frees the run. The analyser does
     * not see that: to it, run->share and `s` are two lists.
     * NOLINTNEXTLINE(clang-analyzer-unix.Malloc) */
    return s->oldest && s->oldest == latest ? s->oldest->share_newer : s->oldest;
}

/* The owner with the most, among the owners that can give something. */
static struct share *largest_share(struct history *h, const struct history_run *latest)
{
    bool by_count = h->count > RUNS_MAX;
    struct share *found = NULL;
    for (struct share *s = h->shares; s; s = s->next) {
        bool can_give = oldest_over(s, latest) || (!by_count && s->live_bytes);
        if (can_give &&
            (!found || (by_count ? s->count > found->count : s->bytes > found->bytes)))
            found = s;
    }
    return found;
}

/* Drops the oldest event of the owner's unfinished run that has most. */
static void shed_live(struct history *h, const struct share *s)
{
    struct history_run *found = NULL;
    for (struct history_run *run = h->oldest; run; run = run->newer) {
        if (run->share == s && !run->is_over &&
            (!found || run->events.bytes > found->events.bytes))
            found = run;
    }
    assert(found); /* live_bytes says that there is one with events */
    size_t before = found->events.bytes;
    if (!run_events_shed(&found->events))
        run_events_drop(&found->events);
    kept_count_events(found, (int64_t)found->events.bytes - (int64_t)before);
}

static void take_from(struct history *h, struct share *s, const struct history_run *latest)
{
    struct history_run *run = oldest_over(s, latest);
    if (run)
        kept_unlist(h, run);
    else
        shed_live(h, s);
}

void kept_make_room(struct history *h, const struct history_run *latest)
{
    while (h->count > RUNS_MAX || h->bytes > h->options.memory_bytes) {
        struct share *share = largest_share(h, latest);
        if (!share)
            return;
        take_from(h, share, latest);
    }
}

/* Drops the oldest event of a run. The last one stays when it is small. A large one, such as a
 * picture, goes: the answer will have it. */
static bool shed_event(struct history_run *run)
{
    size_t before = run->events.bytes;
    if (!run_events_shed(&run->events)) {
        if (before <= SMALL_EVENT)
            return false;
        run_events_drop(&run->events);
    }
    kept_count_events(run, (int64_t)run->events.bytes - (int64_t)before);
    return true;
}

void kept_make_event_room(struct history_run *run)
{
    struct history *h = run->history;
    while (h->bytes > h->options.memory_bytes) {
        struct share *share = largest_share(h, run);
        bool is_own = share == run->share;
        if (share && (is_own ? share->oldest != NULL : share->bytes > run->share->bytes))
            take_from(h, share, run);
        else if (!shed_event(run))
            return;
    }
}

struct history_run *kept_new(struct history *h, const char *id, const char *owner)
{
    struct history_run *run = xcalloc(1, sizeof(*run));
    run->history = h;
    run->refs = 1;
    run->cancel_fd = run->stdin_read_fd = run->stdin_write_fd = -1;
    (void)snprintf(run->id, sizeof(run->id), "%s", id);
    (void)snprintf(run->owner, sizeof(run->owner), "%s", owner);
    run->language = "";
    run->wall_ms = -1;
    run->created_ms = clock_wall_ms();
    run->unread_since_ms = clock_ms();
    pthread_condattr_t attr;
    (void)pthread_condattr_init(&attr);
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&run->changed, &attr);
    (void)pthread_condattr_destroy(&attr);
    return run;
}

void kept_list(struct history *h, struct history_run *run)
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
    kept_count(run, RUN_COST);
    run->is_listed = true;
    run->refs++;
}
