/* SPDX-License-Identifier: Apache-2.0 */

/* What clients see of approvals: JSON of approvals, news, rules, grants and the log. */

#include "approval/internal.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/ledger.h"
#include "base/str.h"
#include "run/encode.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    PAGE_BYTES = 1 << 20, /* of a list that goes on from its last row */
    LIST_BYTES = 8 << 20, /* of another list: all that one key can have pending, and more */
    ROW_BYTES = 512,      /* of a row besides its texts */
    ROW_COST = 4,         /* times its bytes: the memory of a row, as text and as JSON */
};

void approval_tell(struct approvals *all, json_t *approval)
{
    if (approval && all->options.announce)
        all->options.announce(all->options.context, approval);
    json_decref(approval);
}

void approvals_attend(struct approvals *all, struct approval_attendance *attendance)
{
    (void)pthread_mutex_lock(&all->lock);
    attendance->next = all->attended;
    all->attended = attendance;
    (void)pthread_mutex_unlock(&all->lock);
}

void approvals_unattend(struct approvals *all, struct approval_attendance *attendance)
{
    (void)pthread_mutex_lock(&all->lock);
    struct approval_attendance **at = &all->attended;
    while (*at && *at != attendance)
        at = &(*at)->next;
    if (*at)
        *at = attendance->next;
    (void)pthread_mutex_unlock(&all->lock);
}

json_t *approvals_of(struct approvals *all, const char *place)
{
    json_t *list = NULL;
    (void)pthread_mutex_lock(&all->lock);
    for (const struct approval *p = all->pending; p; p = p->next) { /* the newest first */
        if (p->phase != PHASE_PERSON || !str_eq(approval_place(p), place))
            continue;
        cleanup_free char *summary = effect_describe(&p->effect);
        list = list ? list : json_array();
        (void)json_array_insert_new(list, 0,
            json_pack(
                "{s:s, s:s, s:O}", "id", p->id, "summary", summary, "effect", p->effect.json));
    }
    (void)pthread_mutex_unlock(&all->lock);
    return list;
}

static json_t *load(const char *text)
{
    json_t *json = text[0] ? json_loads(text, JSON_DECODE_ANY, NULL) : NULL;
    return json ? json : json_null();
}

static const char *or_null(const char *text)
{
    return text[0] ? text : NULL;
}

static json_t *time_json(int64_t ms)
{
    return ms ? result_time_json(ms / 1000) : json_null();
}

static json_t *row_json(const struct approval_row *row)
{
    json_t *effect = load(row->effect);
    struct effect made = {0};
    cleanup_free char *summary =
        effect_read(effect, &made, NULL) == 0 ? effect_describe(&made) : xstrdup("");
    effect_done(&made);
    return json_pack(
        "{s:s, s:s, s:o, s:s, s:s, s:o, s:s?, s:s?, s:s?, s:s?, s:b, s:o, s:o, s:o, "
        "s:s?, s:s?, s:s?, s:s?, s:I}",
        "id", row->id, "state", row->state, "effect", effect, "summary", summary, "reason",
        row->reason, "reviewer", load(row->reviewer), "owner", or_null(row->owner), "run",
        or_null(row->run), "session", or_null(row->session), "execution",
        or_null(row->execution), "require_human", row->require_human, "created_at",
        time_json(row->created_ms), "expires_at", time_json(row->expires_ms), "decided_at",
        time_json(row->decided_ms), "scope", or_null(row->scope), "decided_by",
        or_null(row->decided_by), "via", or_null(row->via), "comment", or_null(row->comment),
        "change", (json_int_t)row->changed);
}

json_t *approval_view(struct approvals *all, const char *id)
{
    CLEANUP(approval_row_done) struct approval_row row = {0};
    return approval_store_get(all->store, id, &row) == 0 ? row_json(&row) : NULL;
}

int approvals_get(struct approvals *all, const char *id, const struct approval_viewer *viewer,
    json_t **ret, struct err *err)
{
    CLEANUP(approval_row_done) struct approval_row row = {0};
    (void)pthread_mutex_lock(&all->lock);
    int r = approval_store_get(all->store, id, &row);
    if (r == 0 && !approvals_may_see(all, viewer, row.owner))
        r = -ENOENT;
    (void)pthread_mutex_unlock(&all->lock);
    if (r < 0)
        return err_set(err, ERR_NOT_FOUND, ENOENT, "there is no approval `%.64s`", id);
    *ret = row_json(&row);
    return 0;
}

/* --- lists */

/* A list that is being made. An effect may have EFFECT_TEXT_MAX bytes, and a program chooses
 * how many effects there are: a list ends after `most` bytes, and its purse counts the memory.
 */
struct listing {
    json_t *list;
    size_t bytes, most;
    bool is_cut;
    struct purse *purse; /* or NULL */
    bool is_starved;
    int64_t last; /* the greatest change among the rows */
};

/* Whether a row with these bytes belongs to the list. The first one always does. */
static bool take_room(struct listing *l, size_t bytes)
{
    l->is_cut = l->is_cut || (l->bytes && l->bytes + bytes > l->most);
    if (l->is_cut || l->is_starved)
        return false;
    l->is_starved = l->purse && !purse_take(l->purse, ROW_COST * bytes);
    l->bytes += bytes;
    return !l->is_starved;
}

/* Ends a list: -ENOMEM when there was no memory for it. */
static int finish_list(struct listing *l, json_t **ret)
{
    if (l->is_starved) {
        json_decref(l->list);
        return -ENOMEM;
    }
    *ret = l->list;
    return 0;
}

static void add_row(void *context, const struct approval_row *row)
{
    struct listing *l = context;
    if (!take_room(l, strlen(row->effect) + strlen(row->reviewer) + ROW_BYTES))
        return;
    (void)json_array_append_new(l->list, row_json(row));
    l->last = row->changed > l->last ? row->changed : l->last;
}

/* The key whose approvals a viewer sees; NULL: the approvals of all keys. */
static const char *whose(const struct approvals *all, const struct approval_viewer *viewer)
{
    bool sees_all = viewer->is_operator ||
                    (all->approvers.count && strv_has(&all->approvers, viewer->name));
    return sees_all ? NULL : viewer->name;
}

int approvals_list(struct approvals *all, const struct approval_viewer *viewer, int state,
    size_t limit, struct purse *purse, json_t **ret)
{
    struct listing l = {.list = json_array(), .most = LIST_BYTES, .purse = purse};
    const struct approval_query query = {.owner = whose(all, viewer),
        .state = state < 0 ? NULL : approval_state_name((enum approval_state)state),
        .after = -1,
        .limit = limit};
    (void)pthread_mutex_lock(&all->lock);
    (void)approval_store_list(all->store, &query, add_row, &l);
    (void)pthread_mutex_unlock(&all->lock);
    return finish_list(&l, ret);
}

int approvals_listen(struct approvals *all, struct approval_listener *listener, struct err *err)
{
    size_t own = 0;
    (void)pthread_mutex_lock(&all->lock);
    for (const struct approval_listener *l = all->listeners; l; l = l->next)
        own += str_eq(l->viewer.name, listener->viewer.name);
    if (own < LISTENERS_PER_KEY) {
        listener->next = all->listeners;
        all->listeners = listener;
    }
    (void)pthread_mutex_unlock(&all->lock);
    return own < LISTENERS_PER_KEY
               ? 0
               : err_retry(err,
                     err_set(err, ERR_BUSY, EBUSY,
                         "this key listens to approvals %d times already; close a stream first",
                         LISTENERS_PER_KEY),
                     5);
}

void approvals_unlisten(struct approvals *all, struct approval_listener *listener)
{
    struct approval_listener **at = &all->listeners;
    (void)pthread_mutex_lock(&all->lock);
    while (*at && *at != listener)
        at = &(*at)->next;
    if (*at)
        *at = listener->next;
    (void)pthread_mutex_unlock(&all->lock);
}

void approvals_count(struct approvals *all, size_t *ret_pending, size_t *ret_listeners)
{
    *ret_pending = *ret_listeners = 0;
    (void)pthread_mutex_lock(&all->lock);
    for (const struct approval *p = all->pending; p; p = p->next)
        ++*ret_pending;
    for (const struct approval_listener *l = all->listeners; l; l = l->next)
        ++*ret_listeners;
    (void)pthread_mutex_unlock(&all->lock);
}

json_t *approvals_news(struct approvals *all, struct approval_listener *listener)
{
    struct listing l = {.most = PAGE_BYTES};
    (void)pthread_mutex_lock(&all->lock);
    uint64_t last = (uint64_t)approval_store_last(all->store);
    if (listener->seen < last || !listener->has_begun) {
        const struct approval_query query = {.owner = whose(all, &listener->viewer),
            .state = listener->has_begun ? NULL : "pending",
            .after = (int64_t)listener->seen,
            .limit = LOG_PAGE};
        l.list = json_array();
        (void)approval_store_list(all->store, &query, add_row, &l);
        listener->has_begun = true;
        bool is_cut = l.is_cut || json_array_size(l.list) == LOG_PAGE;
        listener->seen = is_cut ? (uint64_t)l.last : last;
    }
    (void)pthread_mutex_unlock(&all->lock);
    if (l.list && json_array_size(l.list) == 0) {
        json_decref(l.list);
        return NULL;
    }
    return l.list;
}

/* --- rules and grants */

bool approvals_have_rules(struct approvals *all, enum effect_kind kind)
{
    bool is_found = false;
    (void)pthread_mutex_lock(&all->lock);
    for (size_t i = 0; i < all->rules.count; i++)
        is_found = is_found || all->rules.items[i].kind == kind;
    (void)pthread_mutex_unlock(&all->lock);
    return is_found;
}

json_t *approvals_rules(struct approvals *all)
{
    (void)pthread_mutex_lock(&all->lock);
    json_t *json = json_deep_copy(all->rules.json);
    (void)pthread_mutex_unlock(&all->lock);
    return json;
}

int approvals_set_rules(struct approvals *all, const json_t *rules,
    const struct approval_viewer *viewer, struct err *err)
{
    struct rules read = {0};
    int r = rules_read(rules, &read, err);
    if (r < 0)
        return r;
    cleanup_free char *text = json_dumps(rules, JSON_COMPACT);
    char digest[EFFECT_DIGEST];
    digest_hex(text ? text : "", text ? strlen(text) : 0, digest);
    cleanup_free char *data = xasprintf(
        "{\"by\":\"%s\",\"count\":%zu,\"sha256\":\"%s\"}", viewer->name, read.count, digest);
    struct log_row log = {
        .owner = viewer->name, .place = "", .approval = "", .event = "rules", .data = data};
    (void)pthread_mutex_lock(&all->lock);
    r = approval_store_set_rules(all->store, text ? text : "", &log, err);
    if (r == 0) {
        struct rules old = all->rules;
        all->rules = read;
        read = old;
    }
    (void)pthread_mutex_unlock(&all->lock);
    rules_done(&read);
    return r;
}

static void add_grant(void *context, const struct grant_row *row)
{
    struct listing *l = context;
    if (!take_room(l, strlen(row->effect) + ROW_BYTES))
        return;
    (void)json_array_append_new(
        l->list, json_pack("{s:I, s:s?, s:s?, s:o, s:s?, s:s, s:o}", "id", (json_int_t)row->id,
                     "owner", or_null(row->owner), "session", or_null(row->session), "effect",
                     load(row->effect), "decided_by", or_null(row->decided_by), "via", row->via,
                     "created_at", time_json(row->created_ms)));
}

int approvals_grants(struct approvals *all, const struct approval_viewer *viewer,
    struct purse *purse, json_t **ret)
{
    struct listing l = {.list = json_array(), .most = LIST_BYTES, .purse = purse};
    (void)pthread_mutex_lock(&all->lock);
    (void)approval_store_grants(all->store, whose(all, viewer), add_grant, &l);
    (void)pthread_mutex_unlock(&all->lock);
    return finish_list(&l, ret);
}

struct search {
    int64_t id;
    char *owner; /* of the grant that was found, else NULL */
};

static void find_grant(void *context, const struct grant_row *row)
{
    struct search *search = context;
    if (row->id == search->id)
        search->owner = xstrdup(row->owner);
}

int approvals_revoke(
    struct approvals *all, int64_t grant, const struct approval_viewer *viewer, struct err *err)
{
    struct search search = {.id = grant};
    cleanup_free char *data =
        xasprintf("{\"by\":\"%s\",\"grant\":%lld}", viewer->name, (long long)grant);
    (void)pthread_mutex_lock(&all->lock);
    (void)approval_store_grants(all->store, whose(all, viewer), find_grant, &search);
    struct log_row log = {.owner = search.owner ? search.owner : "",
        .place = "",
        .approval = "",
        .event = "revoked",
        .data = data};
    int r = search.owner ? approval_store_revoke(all->store, grant, &log, err)
                         : err_set(err, ERR_NOT_FOUND, ENOENT, "there is no grant %lld",
                               (long long)grant);
    (void)pthread_mutex_unlock(&all->lock);
    free(search.owner);
    return r;
}

/* --- the log */

static void add_log(void *context, const struct log_row *row)
{
    struct listing *l = context;
    if (!take_room(l, strlen(row->data) + ROW_BYTES))
        return;
    (void)json_array_append_new(l->list,
        json_pack("{s:I, s:I, s:s, s:s, s:s, s:s, s:s, s:s, s:s}", "seq", (json_int_t)row->seq,
            "time_ms", (json_int_t)row->time_ms, "owner", row->owner, "place", row->place,
            "approval", row->approval, "event", row->event, "data", row->data, "prev_hash",
            row->prev_hash, "hash", row->hash));
}

int approvals_log(struct approvals *all, const struct approval_viewer *viewer, int64_t after,
    size_t limit, struct purse *purse, json_t **ret)
{
    struct listing l = {.list = json_array(), .most = PAGE_BYTES, .purse = purse};
    const struct log_query query = {
        .owner = whose(all, viewer), .after = after, .limit = limit};
    (void)pthread_mutex_lock(&all->lock);
    (void)approval_store_log_list(all->store, &query, add_log, &l);
    (void)pthread_mutex_unlock(&all->lock);
    return finish_list(&l, ret);
}

bool approvals_sees_all(const struct approvals *all, const struct approval_viewer *viewer)
{
    return !whose(all, viewer);
}
