/* SPDX-License-Identifier: Apache-2.0 */

/* See execution.h. One lock for all executions: what is done under it is short. */

#include "mcp/execution.h"

#include "approval/approval.h"
#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/str.h"
#include "base/utf8.h"
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

struct pause {
    char id[ID_MAX];
    unsigned number;
    json_t *interaction;
    execution_reply *reply; /* NULL: decided */
    void *context;
    char approval[ID_MAX]; /* of the effect that it is about; or "" */
    struct pause *next;
};

struct execution {
    struct executions *all;
    unsigned refs;
    int owner;
    char id[ID_MAX];
    int cancel_fd;
    bool is_done;
    uint64_t began_ms, done_ms;
    json_t *outcome;
    json_t *kept; /* object: name to content */
    int also_cancel_fd;
    struct purse purse; /* of the outcome */
    struct pause *pauses, **last;
    unsigned pause_count;
    struct approval_attendance attendance; /* place: "" for none */
    struct execution *next;
};

struct executions {
    struct mcp *mcp;
    pthread_mutex_t lock;
    pthread_cond_t news;
    struct execution *first;
    unsigned running;
    bool is_stopping;
};

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

static void lock(struct executions *all)
{
    (void)pthread_mutex_lock(&all->lock);
}

static void unlock(struct executions *all)
{
    (void)pthread_mutex_unlock(&all->lock);
}

/* The lock is held. */
static void drop(struct execution *e)
{
    if (--e->refs)
        return;
    while (e->pauses) {
        struct pause *p = e->pauses;
        e->pauses = p->next;
        json_decref(p->interaction);
        free(p);
    }
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
    lock(all);
    drop(e);
    unlock(all);
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
    lock(all);
    all->running--;
    drop(e);
    (void)pthread_cond_broadcast(&all->news);
    unlock(all);
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
    lock(all);
    forget_old(all, owner);
    bool is_full = all->is_stopping || running_of(all, owner) >= EXECUTIONS_OF_KEY;
    if (!is_full && e->cancel_fd >= 0) {
        e->next = all->first;
        all->first = e;
        all->running++;
        unlock(all);
        return e;
    }
    unlock(all);
    if (e->cancel_fd >= 0)
        (void)close(e->cancel_fd);
    json_decref(e->kept);
    free(e);
    (void)err_set(err, ERR_BUSY, EAGAIN,
        "%d executions of this key are under way; wait for one of them", EXECUTIONS_OF_KEY);
    return NULL;
}

/* Takes an execution whose thread did not start off the list. */
static void unlist(struct executions *all, struct execution *e)
{
    lock(all);
    struct execution **link = &all->first;
    while (*link != e)
        link = &(*link)->next;
    *link = e->next;
    e->refs = 1;
    all->running--;
    drop(e);
    unlock(all);
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

/* --- effects that wait for an approval */

/* The reply of such a pause: approvals know the decision. */
static void by_approval(void *context, const char *action, const json_t *content)
{
}

void execution_attend(struct execution *e, const char *place)
{
    lock(e->all);
    (void)snprintf(e->attendance.place, sizeof(e->attendance.place), "%s", place);
    unlock(e->all);
    approvals_attend(mcp_state(e->all->mcp)->approvals, &e->attendance);
}

static void unattend(struct execution *e)
{
    if (e->attendance.place[0])
        approvals_unattend(mcp_state(e->all->mcp)->approvals, &e->attendance);
    lock(e->all);
    e->attendance.place[0] = '\0';
    unlock(e->all);
}

/* Whether a text has characters that change how the text around them looks. */
static bool has_hidden(const char *text)
{
    size_t len = strlen(text);
    uint32_t code;
    for (size_t i = 0, n; i < len; i += n ? n : 1) {
        n = utf8_next(text + i, len - i, &code);
        if (n && ((code >= 0x200b && code <= 0x200f) || (code >= 0x2028 && code <= 0x202e) ||
                     (code >= 0x2060 && code <= 0x206f) || code == 0xfeff))
            return true;
    }
    return false;
}

/* All of an effect that has a value, on one line: whoever decides must see what happens. The
 * caller frees it. */
static char *whole_effect(const json_t *effect)
{
    json_t *shown = json_object();
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)effect, name, value)
    {
        if (!json_is_null(value))
            (void)json_object_set(shown, name, value);
    }
    char *text = json_dumps(shown, JSON_SORT_KEYS);
    if (text && has_hidden(text)) {
        free(text);
        text = json_dumps(shown, JSON_SORT_KEYS | JSON_ENSURE_ASCII);
    }
    json_decref(shown);
    return text ? text : xstrdup("");
}

/* What the client is shown. The effect is data of a stranger. */
static json_t *interaction_of(const json_t *question)
{
    const json_t *effect = json_object_get(question, "effect");
    const char *fields[] = {"tool", "host", "mount", "secret"};
    const json_t *address = NULL;
    for (size_t i = 0; !address && i < sizeof(fields) / sizeof(fields[0]); i++)
        address = json_object_get(effect, fields[i]);
    cleanup_free char *whole = whole_effect(effect);
    cleanup_free char *message = xasprintf("The code wants to %s. Allow it once?\n%s",
        json_string_value(json_object_get(question, "summary")), whole);
    return json_pack("{s:s, s:s, s:s, s:O*, s:O, s:{s:s, s:{}}}", "kind", "form", "message",
        message, "instructions",
        "Ask the user, then call resume with this executionId and action \"accept\", "
        "\"decline\" or \"cancel\".",
        "address", address, "args", effect, "requestedSchema", "type", "object", "properties");
}

static struct pause *find_approval(const struct execution *e, const char *id)
{
    struct pause *p = e->pauses;
    while (p && !str_eq(p->approval, id))
        p = p->next;
    return p;
}

static bool is_listed(const json_t *list, const char *id)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        if (str_eq(json_string_value(json_object_get(json_array_get(list, i), "id")), id))
            return true;
    }
    return false;
}

/* Marks a pause as decided. Its id is still known; what it asked is not kept: a client may let
 * an execution pause often, and keep many. */
static execution_reply *take_reply(struct pause *p)
{
    execution_reply *reply = p->reply;
    p->reply = NULL;
    json_decref(p->interaction);
    p->interaction = NULL;
    return reply;
}

static struct pause *add_pause(struct execution *e, json_t *interaction)
{
    struct pause *p = xcalloc(1, sizeof(*p));
    p->interaction = interaction;
    id_make("exec_", p->id);
    p->number = ++e->pause_count;
    *e->last = p;
    e->last = &p->next;
    return p;
}

/* Each question that is pending is a pause; one that somebody else decided is none any more.
 * The lock is held. */
static void follow_approvals(struct execution *e)
{
    if (!e->attendance.place[0] || e->is_done)
        return;
    json_t *list = approvals_of(mcp_state(e->all->mcp)->approvals, e->attendance.place);
    for (struct pause *p = e->pauses; p; p = p->next) {
        if (p->approval[0] && p->reply && !is_listed(list, p->approval))
            (void)take_reply(p);
    }
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *question = json_array_get(list, i);
        const char *id = json_string_value(json_object_get(question, "id"));
        if (find_approval(e, id) || e->pause_count >= EXECUTION_PAUSES)
            continue;
        struct pause *p = add_pause(e, interaction_of(question));
        p->reply = by_approval;
        (void)snprintf(p->approval, sizeof(p->approval), "%s", id);
    }
    json_decref(list);
}

/* A decision that does not count (a rule wants a person, or others decide) leaves the question
 * to those others. */
static void decide_approval(
    const struct execution *e, const struct pause *p, const char *action, const char *via)
{
    struct state *state = mcp_state(e->all->mcp);
    const struct approval_viewer viewer = state_viewer(state, e->owner);
    const struct approval_decision decision = {
        .is_approved = str_eq(action, "accept"), .scope = SCOPE_ONCE, .via = via};
    struct err err = {0};
    if (approvals_decide(state->approvals, p->approval, &viewer, &decision, &err) < 0)
        log_event(LOG_INFO, "a decision through MCP does not count", "approval", p->approval,
            "reason", err.message, (char *)NULL);
}

void execution_finish(struct execution *e, json_t *outcome)
{
    struct executions *all = e->all;
    size_t size =
        json_dumpb(outcome, NULL, 0, JSON_COMPACT) + json_dumpb(e->kept, NULL, 0, JSON_COMPACT);
    if (!purse_take(&e->purse, 2 * size)) {
        json_decref(outcome);
        lock(all);
        (void)json_object_clear(e->kept);
        unlock(all);
        outcome = too_large();
    }
    unattend(e);
    for (struct pause *p = e->pauses; p; p = p->next) {
        lock(all);
        execution_reply *reply = take_reply(p);
        unlock(all);
        if (reply)
            reply(p->context, "cancel", NULL);
    }
    lock(all);
    e->outcome = outcome;
    e->is_done = true;
    e->done_ms = clock_ms();
    (void)pthread_cond_broadcast(&all->news);
    unlock(all);
}

int execution_pause(
    struct execution *e, json_t *interaction, execution_reply *reply, void *context)
{
    struct executions *all = e->all;
    if (e->pause_count >= EXECUTION_PAUSES) {
        json_decref(interaction);
        return -ENOBUFS;
    }
    lock(all);
    struct pause *p = add_pause(e, interaction);
    p->reply = reply;
    p->context = context;
    (void)pthread_cond_broadcast(&all->news);
    unlock(all);
    return 0;
}

static bool has_id(const struct execution *e, const char *id, unsigned *ret_pause)
{
    *ret_pause = 0;
    if (str_eq(e->id, id))
        return true;
    for (const struct pause *p = e->pauses; p; p = p->next) {
        *ret_pause = p->number;
        if (str_eq(p->id, id))
            return true;
    }
    return false;
}

struct execution *execution_find(
    struct executions *all, int owner, const char *id, unsigned *ret_pause)
{
    lock(all);
    forget_old(all, owner);
    struct execution *e = all->first;
    while (e && !(e->owner == owner && has_id(e, id, ret_pause)))
        e = e->next;
    if (e)
        e->refs++;
    unlock(all);
    return e;
}

bool execution_decide(struct execution *e, unsigned pause, const char *action,
    const json_t *content, const char *via)
{
    lock(e->all);
    struct pause *p = e->pauses;
    while (p && p->number != pause)
        p = p->next;
    execution_reply *reply = p ? take_reply(p) : NULL;
    unlock(e->all);
    if (reply && p->approval[0])
        decide_approval(e, p, action, via);
    else if (reply)
        reply(p->context, action, content);
    return reply;
}

bool execution_is_open(struct execution *e, unsigned pause)
{
    lock(e->all);
    follow_approvals(e);
    const struct pause *p = e->pauses;
    while (p && p->number != pause)
        p = p->next;
    bool is_open = !e->is_done && p && p->reply;
    unlock(e->all);
    return is_open;
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
    lock(e->all);
    cancel(e);
    unlock(e->all);
}

void execution_also_cancel(struct execution *e, int fd)
{
    lock(e->all);
    e->also_cancel_fd = fd;
    unlock(e->all);
}

void execution_keep(struct execution *e, const char *name, json_t *content)
{
    lock(e->all);
    (void)json_object_set_new(e->kept, name, content);
    unlock(e->all);
}

json_t *execution_kept(struct execution *e, const char *name)
{
    lock(e->all);
    json_t *content = json_object_get(e->kept, name);
    content = content ? json_deep_copy(content) : NULL;
    unlock(e->all);
    return content;
}

void executions_list(struct executions *all, int owner, json_t *list)
{
    const char *name;
    json_t *content;
    lock(all);
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
    unlock(all);
}

/* The lock is held. */
static const struct pause *open_pause(const struct execution *e)
{
    const struct pause *p = e->pauses;
    while (p && !p->reply)
        p = p->next;
    return p;
}

static void look(const struct execution *e, struct execution_view *ret)
{
    const struct pause *p = e->is_done ? NULL : open_pause(e);
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
    lock(all);
    for (;;) {
        uint64_t now = clock_ms();
        follow_approvals(e);
        if (e->is_done || open_pause(e) || now >= until_ms || all->is_stopping)
            break;
        nap(all, until_ms - now);
        bool is_due = now - told_ms >= PROGRESS_MS;
        unlock(all);
        r = mcp_wait(call, -1, 0);
        if (is_due) {
            mcp_progress(call, (double)(now - e->began_ms) / 1000, 0, "running");
            told_ms = now;
        }
        lock(all);
        if (r < 0)
            break;
    }
    look(e, ret);
    unlock(all);
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
    lock(all);
    all->is_stopping = true;
    for (struct execution *e = all->first; e; e = e->next)
        cancel(e);
    (void)pthread_cond_broadcast(&all->news);
    for (unsigned i = 0; all->running && i < 10000 / NAP_MS; i++)
        nap(all, NAP_MS);
    unlock(all);
}

void executions_free(struct executions *all)
{
    if (all->running)
        return; /* a thread that did not end in time still uses it */
    lock(all);
    while (all->first) {
        struct execution *e = all->first;
        all->first = e->next;
        drop(e);
    }
    unlock(all);
    (void)pthread_cond_destroy(&all->news);
    (void)pthread_mutex_destroy(&all->lock);
    free(all);
}
