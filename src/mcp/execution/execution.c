/* SPDX-License-Identifier: Apache-2.0 */

/* See execution.h. How executions start, end, are found and waited for; pause.c has their
 * pauses. One lock for all executions: what is done under it is short. */

#include "mcp/execution/internal.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"
#include "service/later.h"
#include "state/state.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

enum { NAP_MS = 100, PROGRESS_MS = 5000 };

/* The thread of an execution. */
struct thread {
    struct later later;
    struct execution *e;
    execution_work *work;
    void (*done)(void *context);
    void *context;
};

struct executions *executions_new(struct mcp *mcp)
{
    struct executions *all = xcalloc(1, sizeof(*all));
    pthread_condattr_t attributes;
    all->mcp = mcp;
    (void)pthread_mutex_init(&all->lock, NULL);
    (void)pthread_condattr_init(&attributes);
    (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&all->news, &attributes);
    (void)pthread_condattr_destroy(&attributes);
    return all;
}

/* The lock is held. */
static void drop(struct execution *e)
{
    if (--e->refs)
        return;
    pauses_free(e);
    json_decref(e->outcome);
    json_decref(e->kept);
    purse_close(&e->purse);
    (void)close(e->cancel_fd);
    free(e);
}

void execution_unref(struct execution *e)
{
    if (!e)
        return;
    struct executions *all = e->all;
    executions_lock(all);
    drop(e);
    executions_unlock(all);
}

/* Removes old ones, and the oldest of a key that has too many. The lock is held. */
static void forget_old(struct executions *all, int owner)
{
    uint64_t now = clock_ms();
    unsigned kept = 0;
    struct execution **link = &all->first; /* the newest first */
    while (*link) {
        struct execution *e = *link;
        bool is_old = e->is_done && now - e->done_ms > (uint64_t)EXECUTION_KEPT_S * 1000;
        if (e->is_done && e->owner == owner)
            kept++;
        if (is_old || (e->is_done && e->owner == owner && kept > EXECUTIONS_KEPT)) {
            *link = e->next;
            drop(e);
        } else {
            link = &e->next;
        }
    }
}

static unsigned running_of(const struct executions *all, int owner)
{
    unsigned count = 0;
    for (const struct execution *e = all->first; e; e = e->next)
        count += e->owner == owner && !e->is_done;
    return count;
}

static enum run_status work(struct later *later, struct answer **ret_answer)
{
    struct thread *t = (struct thread *)later;
    t->work(t->e, t->context);
    *ret_answer = NULL;
    return RUN_OK;
}

static void thread_free(struct later *later)
{
    struct thread *t = (struct thread *)later;
    struct execution *e = t->e;
    struct executions *all = e->all;
    if (t->done)
        t->done(t->context);
    free(t);
    executions_lock(all);
    all->running--;
    drop(e);
    (void)pthread_cond_broadcast(&all->news);
    executions_unlock(all);
}

static struct execution *enlist(struct executions *all, int owner, struct err *err)
{
    struct execution *e = xcalloc(1, sizeof(*e));
    *e = (struct execution){.all = all,
        .refs = 3, /* the list's, the thread's, the caller's */
        .owner = owner,
        .cancel_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK),
        .also_cancel_fd = -1,
        .kept = json_object(),
        .began_ms = clock_ms()};
    e->last = &e->pauses;
    id_make("exec_", e->id);
    purse_open(&e->purse, mcp_state(all->mcp)->ledger, owner);
    executions_lock(all);
    forget_old(all, owner);
    bool is_full = all->is_stopping || running_of(all, owner) >= EXECUTIONS_OF_KEY;
    if (!is_full && e->cancel_fd >= 0) {
        e->next = all->first;
        all->first = e;
        all->running++;
        executions_unlock(all);
        return e;
    }
    executions_unlock(all);
    if (e->cancel_fd >= 0)
        (void)close(e->cancel_fd);
    json_decref(e->kept);
    free(e);
    (void)err_set(err, ERR_BUSY, EAGAIN,
        "%d executions of this key are under way; wait for one of them", EXECUTIONS_OF_KEY);
    return NULL;
}

/* Removes an execution from the list after its thread failed to start. */
static void unlist(struct executions *all, struct execution *e)
{
    executions_lock(all);
    struct execution **link = &all->first;
    while (*link != e)
        link = &(*link)->next;
    *link = e->next;
    e->refs = 1;
    all->running--;
    drop(e);
    executions_unlock(all);
}

int execution_start(struct executions *all, int owner, size_t bytes, execution_work *run,
    void (*done)(void *context), void *context, struct execution **ret, struct err *err)
{
    struct execution *e = enlist(all, owner, err);
    if (!e)
        return -EAGAIN;
    struct thread *t = xcalloc(1, sizeof(*t));
    *t = (struct thread){.later = {.state = mcp_state(all->mcp),
                             .owner = owner,
                             .work = work,
                             .free = thread_free},
        .e = e,
        .work = run,
        .done = done,
        .context = context};
    int r = later_count(&t->later, bytes, err);
    if (r == 0)
        r = later_start(&t->later, NULL, err);
    if (r < 0) {
        purse_close(&t->later.purse);
        free(t);
        unlist(all, e);
        return r;
    }
    *ret = e;
    return 0;
}

const char *execution_id(const struct execution *e)
{
    return e->id;
}

int execution_owner(const struct execution *e)
{
    return e->owner;
}

int execution_cancel_fd(const struct execution *e)
{
    return e->cancel_fd;
}

static json_t *too_large(void)
{
    static const char text[] = "Error: the server has no memory to keep this result; return "
                               "less, or write it to a file in pieces";
    return mcp_text_result(text, strlen(text),
        json_pack("{s:s, s:s, s:[]}", "status", "error", "error", text + 7, "logs"), true);
}

void execution_finish(struct execution *e, json_t *outcome)
{
    struct executions *all = e->all;
    size_t size =
        json_dumpb(outcome, NULL, 0, JSON_COMPACT) + json_dumpb(e->kept, NULL, 0, JSON_COMPACT);
    if (!purse_take(&e->purse, 2 * size)) {
        json_decref(outcome);
        executions_lock(all);
        (void)json_object_clear(e->kept);
        executions_unlock(all);
        outcome = too_large();
    }
    pauses_end(e);
    executions_lock(all);
    e->outcome = outcome;
    e->is_done = true;
    e->done_ms = clock_ms();
    (void)pthread_cond_broadcast(&all->news);
    executions_unlock(all);
}

static bool has_id(const struct execution *e, const char *id, unsigned *ret_pause)
{
    *ret_pause = 0;
    return str_eq(e->id, id) || pauses_have(e, id, ret_pause);
}

struct execution *execution_find(
    struct executions *all, int owner, const char *id, unsigned *ret_pause)
{
    executions_lock(all);
    forget_old(all, owner);
    struct execution *e = all->first;
    while (e && !(e->owner == owner && has_id(e, id, ret_pause)))
        e = e->next;
    if (e)
        e->refs++;
    executions_unlock(all);
    return e;
}

/* The lock is held. */
static void cancel(struct execution *e)
{
    uint64_t one = 1;
    ssize_t n = write(e->cancel_fd, &one, sizeof(one));
    if (e->also_cancel_fd >= 0)
        n = write(e->also_cancel_fd, &one, sizeof(one));
    (void)n;
}

void execution_cancel(struct execution *e)
{
    executions_lock(e->all);
    cancel(e);
    executions_unlock(e->all);
}

void execution_also_cancel(struct execution *e, int fd)
{
    executions_lock(e->all);
    e->also_cancel_fd = fd;
    executions_unlock(e->all);
}

void execution_keep(struct execution *e, const char *name, json_t *content)
{
    executions_lock(e->all);
    (void)json_object_set_new(e->kept, name, content);
    executions_unlock(e->all);
}

json_t *execution_kept(struct execution *e, const char *name)
{
    executions_lock(e->all);
    json_t *content = json_object_get(e->kept, name);
    content = content ? json_deep_copy(content) : NULL;
    executions_unlock(e->all);
    return content;
}

void executions_list(struct executions *all, int owner, json_t *list)
{
    const char *name;
    json_t *content;
    executions_lock(all);
    for (struct execution *e = all->first; e; e = e->next) {
        if (e->owner != owner || !e->is_done)
            continue;
        json_object_foreach(e->kept, name, content)
        {
            char uri[128];
            (void)snprintf(uri, sizeof(uri), "hermes://execution/%s/%s", e->id, name);
            (void)json_array_append_new(
                list, json_pack("{s:s, s:s, s:O}", "uri", uri, "name", name, "mimeType",
                          json_object_get(content, "mimeType")));
        }
    }
    executions_unlock(all);
}

static void look(const struct execution *e, struct execution_view *ret)
{
    const struct pause *p = e->is_done ? NULL : pauses_open(e);
    *ret = (struct execution_view){.state = e->is_done ? EXECUTION_DONE
                                            : p        ? EXECUTION_PAUSED
                                                       : EXECUTION_RUNNING};
    (void)snprintf(ret->id, sizeof(ret->id), "%s", p ? p->id : e->id);
    ret->pause = p ? p->number : 0;
    ret->interaction = p ? json_incref(p->interaction) : NULL;
    ret->outcome = e->is_done ? json_incref(e->outcome) : NULL;
}

/* Sleeps until something changes, or for a moment. The lock is held. */
static void nap(struct executions *all, uint64_t most_ms)
{
    struct timespec until;
    uint64_t ms = most_ms < NAP_MS ? most_ms : NAP_MS;
    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += (long)ms * 1000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    (void)pthread_cond_timedwait(&all->news, &all->lock, &until);
}

int execution_wait(
    struct execution *e, struct mcp_call *call, uint64_t timeout_ms, struct execution_view *ret)
{
    struct executions *all = e->all;
    uint64_t until_ms = clock_ms() + timeout_ms;
    uint64_t told_ms = clock_ms();
    int r = 0;
    executions_lock(all);
    for (;;) {
        uint64_t now = clock_ms();
        pauses_follow(e);
        if (e->is_done || pauses_open(e) || now >= until_ms || all->is_stopping)
            break;
        nap(all, until_ms - now);
        bool is_due = now - told_ms >= PROGRESS_MS;
        executions_unlock(all);
        r = mcp_wait(call, -1, 0);
        if (is_due) {
            mcp_progress(call, (double)(now - e->began_ms) / 1000, 0, "running");
            told_ms = now;
        }
        executions_lock(all);
        if (r < 0)
            break;
    }
    look(e, ret);
    executions_unlock(all);
    if (r < 0)
        execution_view_done(ret);
    return r;
}

void execution_view_done(struct execution_view *view)
{
    json_decref(view->interaction);
    json_decref(view->outcome);
    *view = (struct execution_view){0};
}

void executions_stop(struct executions *all)
{
    executions_lock(all);
    all->is_stopping = true;
    for (struct execution *e = all->first; e; e = e->next)
        cancel(e);
    (void)pthread_cond_broadcast(&all->news);
    for (unsigned i = 0; all->running && i < 10000 / NAP_MS; i++)
        nap(all, NAP_MS);
    executions_unlock(all);
}
