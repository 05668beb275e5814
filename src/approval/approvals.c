/* SPDX-License-Identifier: Apache-2.0 */

/* See approval.h. A question is pending exactly as long as its struct approval is in the list:
 * the asker holds it, so a question whose asker is gone cannot be answered any more. */

#include "approval/internal.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>

enum {
    NAP_MS = 500,
    HOUR_MS = 3600 * 1000,
    DAY_MS = 24 * HOUR_MS,
    KEPT_DAYS = 30,
    WAITS_MAX = 4,
    ROW_BYTES = 512, /* of a row of the log besides the effect */
};

static char *copy(const char *text)
{
    return xstrdup(text ? text : "");
}

/* --- opening */

static void lose_row(void *context, const struct approval_row *row)
{
    strv_add(context, row->id);
}

/* Questions of a server that is gone: its boxes are gone, too. */
static int lose_old(struct approvals *all, struct err *err)
{
    CLEANUP(strv_done) struct strv ids = {0};
    const struct approval_query query = {.state = "pending", .after = -1, .limit = 1000000};
    (void)approval_store_list(all->store, &query, lose_row, &ids);
    int r = 0;
    for (size_t i = 0; r == 0 && i < ids.count; i++) {
        CLEANUP(approval_row_done) struct approval_row row = {0};
        r = approval_store_get(all->store, ids.items[i], &row);
        if (r < 0)
            return err_set(err, ERR_INTERNAL, -r, "cannot read the approval %s", ids.items[i]);
        free(row.state);
        row.state = xstrdup(approval_state_name(APPROVAL_LOST));
        row.decided_ms = clock_wall_ms();
        struct log_row log = {.owner = row.owner,
            .place = row.session[0] ? row.session : row.run,
            .approval = row.id,
            .event = "lost",
            .data = "{\"reason\":\"the server restarted\"}"};
        r = approval_store_decide(all->store, &row, NULL, &log, err);
    }
    return r;
}

static int load_rules(struct approvals *all, struct err *err)
{
    cleanup_free char *text = approval_store_rules(all->store);
    json_t *json = text ? json_loads(text, 0, NULL) : json_pack("{s:[]}", "rules");
    int r = rules_read(json, &all->rules, err);
    json_decref(json);
    return r < 0 ? err_wrap(err, r, "the rules of approvals that were set before") : 0;
}

int approvals_open(
    const struct approvals_options *options, struct approvals **ret, struct err *err)
{
    struct approvals *all = xcalloc(1, sizeof(*all));
    all->options = *options;
    if (options->approvers)
        strv_add_all(&all->approvers, options->approvers);
    (void)pthread_mutex_init(&all->lock, NULL);
    (void)pthread_cond_init(&all->has_review, NULL);
    int r = approval_store_open(&all->store, options->path, err);
    if (r == 0)
        r = lose_old(all, err);
    if (r == 0)
        r = load_rules(all, err);
    if (r == 0 && (r = review_start(all)) < 0)
        (void)err_set(err, ERR_UNAVAILABLE, -r, "cannot start a thread for the reviewer: %s",
            strerror(-r));
    if (r < 0) {
        approvals_close(all);
        return r;
    }
    *ret = all;
    return 0;
}

void approvals_close(struct approvals *all)
{
    if (!all)
        return;
    review_stop(all);
    approval_store_close(all->store);
    rules_done(&all->rules);
    strv_done(&all->approvers);
    while (all->shares) {
        struct log_share *share = all->shares;
        all->shares = share->next;
        free(share);
    }
    (void)pthread_cond_destroy(&all->has_review);
    (void)pthread_mutex_destroy(&all->lock);
    free(all);
}

uint64_t approvals_wait_max_ms(const struct approvals *all)
{
    return WAITS_MAX * all->options.timeout_ms;
}

/* --- asking */

static struct approval *approval_new(
    struct approvals *all, const struct effect *effect, const struct approval_asker *asker)
{
    struct approval *p = xcalloc(1, sizeof(*p));
    p->all = all;
    p->refs = 1;
    (void)effect_copy(effect, &p->effect);
    p->owner = copy(asker->owner);
    p->run = copy(asker->run);
    p->session = copy(asker->session);
    p->execution = copy(asker->execution);
    p->intent = copy(asker->intent);
    p->code = copy(asker->code);
    p->box = asker->box ? json_deep_copy(asker->box) : json_null();
    p->is_answerable = asker->is_answerable;
    p->by_rule_only = asker->by_rule_only;
    p->is_once = asker->is_once;
    p->brings_preview = asker->brings_preview;
    p->has_foreign_text = asker->has_foreign_text;
    p->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return p;
}

void approval_unref_locked(struct approval *p)
{
    if (--p->refs > 0)
        return;
    effect_done(&p->effect);
    json_decref(p->box);
    json_decref(p->preview);
    close_fd(&p->fd);
    free(p->owner);
    free(p->run);
    free(p->session);
    free(p->execution);
    free(p->intent);
    free(p->code);
    free(p);
}

const char *approval_place(const struct approval *p)
{
    return p->session[0] ? p->session : p->run[0] ? p->run : p->execution;
}

int approval_note(struct approval *p, const char *event, json_t *data, struct err *err)
{
    cleanup_free char *text = json_dumps(data, JSON_COMPACT | JSON_SORT_KEYS);
    json_decref(data);
    struct log_row log = {.owner = p->owner,
        .place = approval_place(p),
        .approval = p->id,
        .event = event,
        .data = text ? text : "{}"};
    return approval_store_log(p->all->store, &log, err);
}

/* Without a rule, a grant or a question there was no decision to log: a server without
 * approvals writes nothing. */
static bool is_silent(const struct ruling *ruling)
{
    return ruling->kind == RULING_ALLOWED &&
           (ruling->source == SOURCE_MODE || ruling->source == SOURCE_DEFAULT);
}

/* The pipeline has decided, so there is no question. */
static int decide_at_once(struct approval *p, const struct ruling *ruling, struct err *err)
{
    bool is_allowed = ruling->kind == RULING_ALLOWED;
    p->phase = PHASE_OVER;
    p->state = is_allowed ? APPROVAL_APPROVED : APPROVAL_DENIED;
    (void)snprintf(p->reason, sizeof(p->reason), "%s",
        p->is_unavailable ? "no approver is reachable" : ruling->reason);
    (void)eventfd_write(p->fd, 1);
    if (is_silent(ruling))
        return 0;
    return approval_note(p,
        is_allowed          ? "allowed"
        : p->is_unavailable ? "unavailable"
                            : "denied",
        json_pack("{s:O, s:s, s:s}", "effect", p->effect.json, "source",
            ruling_source_name(ruling->source), "reason", p->reason),
        err);
}

static int check_room(const struct approvals *all, const struct approval *p, struct err *err)
{
    size_t own = 0, sum = 0;
    for (const struct approval *one = all->pending; one; one = one->next) {
        own += str_eq(one->owner, p->owner);
        sum++;
    }
    if (own < PENDING_PER_KEY && sum < PENDING_MAX)
        return 0;
    return err_retry(err,
        err_set(err, ERR_BUSY, EBUSY,
            "too many approvals are pending; decide some of them with `hermes approvals`"),
        10);
}

/* Makes the question pending. */
static int pause_effect(struct approval *p, const struct ruling *ruling, struct err *err)
{
    struct approvals *all = p->all;
    int r = check_room(all, p, err);
    if (r < 0)
        return r;
    id_make("apr_", p->id);
    p->created_ms = clock_wall_ms();
    p->expires_ms = p->created_ms + (int64_t)all->options.timeout_ms;
    p->deadline_ms = clock_ms() + all->options.timeout_ms;
    bool is_review = ruling->kind == RULING_REVIEWER && all->options.review;
    p->phase = !is_review ? PHASE_PERSON : p->brings_preview ? PHASE_PREVIEW : PHASE_REVIEW;
    const struct approval_row row = {.id = p->id,
        .owner = p->owner,
        .state = (char *)"pending",
        .effect = p->effect.text,
        .digest = p->effect.digest,
        .reason = p->why_asked,
        .reviewer = (char *)"",
        .run = p->run,
        .session = p->session,
        .execution = p->execution,
        .created_ms = p->created_ms,
        .expires_ms = p->expires_ms,
        .require_human = p->require_human};
    json_t *data = json_pack("{s:O, s:s}", "effect", p->effect.json, "reason", p->why_asked);
    cleanup_free char *text = json_dumps(data, JSON_COMPACT | JSON_SORT_KEYS);
    json_decref(data);
    struct log_row log = {.owner = p->owner,
        .place = approval_place(p),
        .approval = p->id,
        .event = "asked",
        .data = text ? text : "{}"};
    r = approval_store_insert(all->store, &row, &log, err);
    if (r < 0)
        return r;
    p->next = all->pending;
    all->pending = p;
    if (p->phase == PHASE_REVIEW)
        (void)pthread_cond_signal(&all->has_review);
    return 0;
}

static struct log_share *share_of(struct approvals *all, const char *owner)
{
    struct log_share *share = all->shares;
    while (share && !str_eq(share->owner, owner))
        share = share->next;
    if (share)
        return share;
    share = xcalloc(1, sizeof(*share) + strlen(owner) + 1);
    (void)memcpy(share->owner, owner, strlen(owner) + 1);
    share->seen_ms = clock_ms();
    share->next = all->shares;
    all->shares = share;
    return share;
}

/* Code chooses how many effects it tries and how long they are. Beyond the share of its key,
 * they are refused without a row. */
static int check_share(struct approval *p, struct err *err)
{
    struct log_share *share = share_of(p->all, p->owner);
    uint64_t now = clock_ms();
    uint64_t sunk = (now - share->seen_ms) * LOG_BYTES_PER_HOUR / HOUR_MS;
    share->bytes -= sunk < share->bytes ? sunk : share->bytes;
    share->seen_ms = now;
    share->bytes += strlen(p->effect.text) + ROW_BYTES;
    if (share->bytes <= LOG_BYTES_PER_HOUR)
        return 0;
    share->bytes = LOG_BYTES_PER_HOUR;
    return err_retry(err,
        err_set(err, ERR_BUSY, EBUSY,
            "this key has filled its share of the log of approvals; try fewer effects an hour"),
        60);
}

/* Lock held. */
static int ask(struct approval *p, struct err *err)
{
    struct approvals *all = p->all;
    struct ruling ruling;
    struct ruling_facts facts = {.rules = &all->rules, .mode = all->options.mode};
    facts.has_grant = !p->is_once && approval_store_find_grant(all->store, p->owner, p->session,
                                         p->effect.digest, &facts.grant_is_human);
    ruling_make(&p->effect, &facts, &ruling);
    if (p->by_rule_only && ruling.source == SOURCE_DEFAULT)
        ruling.kind = RULING_ALLOWED;
    p->require_human = ruling.require_human;
    memcpy(p->why_asked, ruling.reason, sizeof(p->why_asked));
    bool is_review = ruling.kind == RULING_REVIEWER && all->options.review;
    int r = is_silent(&ruling) ? 0 : check_share(p, err);
    if (r < 0)
        return r;
    if (ruling.kind == RULING_ALLOWED || ruling.kind == RULING_DENIED)
        return decide_at_once(p, &ruling, err);
    if (!is_review && !approval_is_reachable(all, p)) {
        p->is_unavailable = true;
        return decide_at_once(p, &ruling, err);
    }
    return pause_effect(p, &ruling, err);
}

enum ruling_kind approvals_ruling(
    struct approvals *all, const struct effect *effect, const struct approval_asker *asker)
{
    struct ruling ruling;
    struct ruling_facts facts = {.mode = all->options.mode};
    (void)pthread_mutex_lock(&all->lock);
    facts.rules = &all->rules;
    facts.has_grant =
        !asker->is_once &&
        approval_store_find_grant(all->store, asker->owner ? asker->owner : "",
            asker->session ? asker->session : "", effect->digest, &facts.grant_is_human);
    ruling_make(effect, &facts, &ruling);
    (void)pthread_mutex_unlock(&all->lock);
    return ruling.kind;
}

int approvals_ask(struct approvals *all, const struct effect *effect,
    const struct approval_asker *asker, struct approval **ret, struct err *err)
{
    struct approval *p = approval_new(all, effect, asker);
    json_t *news = NULL;
    if (p->fd < 0) {
        int errnum = errno;
        approval_unref_locked(p);
        return err_set(err, err_code_of(errnum), errnum,
            "the server has no descriptor left for an approval; try again later");
    }
    (void)pthread_mutex_lock(&all->lock);
    int r = ask(p, err);
    if (r == 0 && p->phase == PHASE_PERSON)
        news = approval_view(all, p->id);
    if (r < 0)
        approval_unref_locked(p);
    else
        *ret = p;
    (void)pthread_mutex_unlock(&all->lock);
    approval_tell(all, news);
    return r;
}

bool approval_awaits_preview(struct approval *p)
{
    (void)pthread_mutex_lock(&p->all->lock);
    bool awaits = p->phase == PHASE_PREVIEW;
    (void)pthread_mutex_unlock(&p->all->lock);
    return awaits;
}

void approval_preview(struct approval *p, json_t *preview)
{
    struct approvals *all = p->all;
    (void)pthread_mutex_lock(&all->lock);
    if (p->phase == PHASE_PREVIEW) { /* otherwise it was decided meanwhile */
        p->preview = json_incref(preview);
        p->phase = PHASE_REVIEW;
        (void)pthread_cond_signal(&all->has_review);
    }
    (void)pthread_mutex_unlock(&all->lock);
    json_decref(preview);
}

/* --- waiting */

const char *approval_id(const struct approval *p)
{
    return p->id;
}

int approval_fd(const struct approval *p)
{
    return p->fd;
}

static int refusal(const struct approval *p, struct err *err)
{
    cleanup_free char *what = effect_describe(&p->effect);
    if (p->is_unavailable)
        return err_set(err, ERR_APPROVAL_UNAVAILABLE, EPERM,
            "to %s needs an approval, and no approver is reachable; let an approver listen "
            "on /v1/approvals/events (`hermes approvals watch`), set approval_webhook_url, or "
            "let an operator allow it by a rule (`hermes approvals rules`)",
            what);
    return err_set(err, ERR_DENIED, EPERM, "to %s was not approved (%s): %s", what,
        approval_state_name(p->state), p->reason);
}

int approval_verdict(struct approval *p, struct err *err)
{
    (void)pthread_mutex_lock(&p->all->lock);
    int r = 0;
    if (p->state == APPROVAL_PENDING)
        r = -EAGAIN;
    else if (p->state != APPROVAL_APPROVED)
        r = refusal(p, err);
    (void)pthread_mutex_unlock(&p->all->lock);
    return r;
}

int approval_wait(struct approval *p, int cancel_fd, struct err *err)
{
    for (;;) {
        struct pollfd fds[] = {
            {.fd = p->fd, .events = POLLIN}, {.fd = cancel_fd, .events = POLLIN}};
        int r = approval_verdict(p, err);
        if (r != -EAGAIN)
            return r;
        (void)poll(fds, 2, NAP_MS);
        if (fds[1].revents && !(fds[0].revents & POLLIN))
            return -ECANCELED;
        approvals_tick(p->all); /* a program without a server has no other clock */
    }
}

json_t *approval_json(struct approval *p)
{
    (void)pthread_mutex_lock(&p->all->lock);
    json_t *json = json_pack("{s:s?, s:s, s:O}", "id", p->id[0] ? p->id : NULL, "state",
        approval_state_name(p->state), "effect", p->effect.json);
    (void)pthread_mutex_unlock(&p->all->lock);
    return json;
}

void approval_leave(struct approval *p)
{
    struct approvals *all = p->all;
    struct err err = {0};
    json_t *news = NULL;
    (void)pthread_mutex_lock(&all->lock);
    if (p->state == APPROVAL_PENDING) {
        const struct settlement lost = {
            .state = APPROVAL_LOST, .reason = "the asker is gone", .by = "", .via = ""};
        (void)approval_settle(p, &lost, &err);
        news = approval_view(all, p->id);
    }
    (void)pthread_mutex_unlock(&all->lock);
    approval_tell(all, news);
}

void approval_drop(struct approval *p)
{
    if (!p)
        return;
    struct approvals *all = p->all;
    approval_leave(p);
    (void)pthread_mutex_lock(&all->lock);
    approval_unref_locked(p);
    (void)pthread_mutex_unlock(&all->lock);
}

void approvals_tick(struct approvals *all)
{
    uint64_t now = clock_ms();
    int64_t wall = clock_wall_ms();
    json_t *news = json_array();
    (void)pthread_mutex_lock(&all->lock);
    for (struct approval *p = all->pending, *next; p; p = next) {
        struct err err = {0};
        const struct settlement late = {.state = APPROVAL_EXPIRED,
            .reason = "declined: timeout",
            .by = "",
            .via = "timeout"};
        next = p->next;
        if (now < p->deadline_ms)
            continue;
        cleanup_free char *id = xstrdup(p->id); /* the waiting thread may drop the approval */
        (void)approval_settle(p, &late, &err);
        (void)json_array_append_new(news, approval_view(all, id));
    }
    if (wall - all->forgot_ms > DAY_MS) {
        all->forgot_ms = wall;
        approval_store_forget(all->store, wall - (int64_t)KEPT_DAYS * DAY_MS);
    }
    (void)pthread_mutex_unlock(&all->lock);
    for (size_t i = 0; i < json_array_size(news); i++)
        approval_tell(all, json_incref(json_array_get(news, i)));
    json_decref(news);
}
