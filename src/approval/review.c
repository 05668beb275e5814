/* SPDX-License-Identifier: Apache-2.0 */

/* The threads that ask the reviewer, one question at a time each. An approval of the reviewer
 * is for this one attempt and is stored nowhere: the same effect is reviewed again. In mode
 * `gated` its denial blocks; in mode `smart` a person may still allow what it denied.
 * Everything else goes to a person, with the reviewer's reason. */

#include "approval/internal.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/os/thread.h"
#include "base/str.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- what the reviewer sees */

struct so_far {
    json_t *counts;        /* effects by kind */
    json_t *last;          /* SO_FAR of them, the newest first */
    size_t bytes;          /* of the rows so far: they are read while everybody waits */
    bool has_foreign_text; /* a tool or a network was used, so the context has untrusted text */
};

static void add_event(void *context, const struct log_row *row)
{
    struct so_far *s = context;
    s->bytes += strlen(row->data);
    json_t *data = s->bytes <= SO_FAR_BYTES ? json_loads(row->data, 0, NULL) : NULL;
    json_t *effect = json_object_get(data, "effect");
    const char *kind = json_string_value(json_object_get(effect, "kind"));
    bool is_asked = str_eq(row->event, "asked");
    if (kind && !is_asked && !str_eq(row->event, "reviewed")) {
        json_int_t count = json_integer_value(json_object_get(s->counts, kind));
        (void)json_object_set_new(s->counts, kind, json_integer(count + 1));
        bool happened = str_eq(row->event, "approved") || str_eq(row->event, "allowed");
        s->has_foreign_text =
            s->has_foreign_text ||
            (happened && (str_eq(kind, "tool_call") || str_eq(kind, "net_connect")));
        if (json_array_size(s->last) < SO_FAR)
            (void)json_array_append_new(
                s->last, json_pack("{s:O, s:s}", "effect", effect, "decision", row->event));
    }
    json_decref(data);
}

static bool has_items(const json_t *box, const char *name)
{
    return json_array_size(json_object_get(box, name)) > 0;
}

/* The three flow flags. Mounts and secrets count as private: none is marked public yet. A
 * request whose own mounts and secrets are asked about has not read anything. */
static json_t *flow_json(const struct approval *p, const struct so_far *so_far)
{
    const char *network = json_string_value(json_object_get(p->box, "network"));
    bool is_private = has_items(p->box, "mounts") || has_items(p->box, "secrets");
    bool has_begun = p->effect.kind != EFFECT_MOUNT_RW && p->effect.kind != EFFECT_SECRET_USE;
    bool is_foreign = p->has_foreign_text || so_far->has_foreign_text ||
                      (has_begun && network && !str_eq(network, "none"));
    bool carries_out = effect_table[p->effect.kind].carries_out;
    return json_pack("{s:b, s:b, s:b}", "private_data_read", is_private, "untrusted_text_read",
        is_foreign, "carries_data_out", carries_out);
}

static bool is_all_true(json_t *flow)
{
    const char *name;
    json_t *value;
    json_object_foreach(flow, name, value)
    {
        if (!json_is_true(value))
            return false;
    }
    return true;
}

json_t *review_request(struct approval *p)
{
    struct so_far so_far = {.counts = json_object(), .last = json_array()};
    const struct log_query query = {
        .owner = p->owner, .place = approval_place(p), .limit = LOG_PAGE};
    if (approval_place(p)[0])
        (void)approval_store_log_list(p->all->store, &query, add_event, &so_far);
    json_t *flow = flow_json(p, &so_far);
    const char *risk = is_all_true(flow) ? "high" : "medium";
    cleanup_free char *summary = effect_describe(&p->effect);
    return json_pack("{s:O, s:s, s:s, s:O, s:{s:o, s:o}, s:o, s:s, s:s?, s:s?, s:O?}", "effect",
        p->effect.json, "summary", summary, "why_asked", p->why_asked, "box", p->box, "so_far",
        "counts", so_far.counts, "last", so_far.last, "flow", flow, "default_risk", risk,
        "intent", p->intent[0] ? p->intent : NULL, "untrusted_code",
        p->code[0] ? p->code : NULL, "preview", p->preview);
}

/* --- the threads */

static size_t count_reviewed(const struct approvals *all, const char *owner)
{
    size_t count = 0;
    for (const struct approval *p = all->pending; p; p = p->next)
        count += p->phase == PHASE_REVIEWED && str_eq(p->owner, owner);
    return count;
}

/* The oldest question of the key that has the fewest at the reviewer: no key waits for the many
 * questions of another. */
static struct approval *next_review(struct approvals *all)
{
    struct approval *found = NULL;
    size_t least = SIZE_MAX;
    for (struct approval *p = all->pending; p; p = p->next) {
        size_t count = p->phase == PHASE_REVIEW ? count_reviewed(all, p->owner) : SIZE_MAX;
        if (count <= least && p->phase == PHASE_REVIEW) { /* the list has the newest first */
            found = p;
            least = count;
        }
    }
    return found;
}

static const char *const verdict_names[] = {
    [VERDICT_ESCALATE] = "escalate", [VERDICT_APPROVE] = "approve", [VERDICT_DENY] = "deny"};

static json_t *verdict_json(const struct approval_verdict *v)
{
    return json_pack("{s:s, s:s, s:s, s:f, s:s}", "decision", verdict_names[v->decision],
        "scope", "once", "risk", v->risk, "confidence", v->confidence, "reason", v->reason);
}

static int note_verdict(struct approval *p, const struct approval_verdict *v, struct err *err)
{
    json_t *json = verdict_json(v);
    cleanup_free char *text = json_dumps(json, JSON_COMPACT | JSON_SORT_KEYS);
    json_decref(json);
    struct log_row log = {.owner = p->owner,
        .place = approval_place(p),
        .approval = p->id,
        .event = "reviewed",
        .data = text ? text : "{}"};
    return approval_store_review(p->all->store, p->id, log.data, &log, err);
}

static void settle_reviewed(
    struct approval *p, enum approval_state state, const char *reason, bool is_unavailable)
{
    struct err err = {0};
    const struct settlement s = {.state = state,
        .scope = SCOPE_ONCE,
        .by = "",
        .via = is_unavailable ? "unavailable" : "reviewer",
        .reason = reason,
        .is_unavailable = is_unavailable};
    if (approval_settle(p, &s, &err) < 0)
        p->phase = PHASE_PERSON;
}

/* Lock held. The question may have been decided meanwhile. */
static void take_verdict(struct approval *p, const struct approval_verdict *v)
{
    struct err err = {0};
    bool blocks = v->decision == VERDICT_DENY && p->all->options.mode == APPROVAL_GATED;
    if (p->state != APPROVAL_PENDING)
        return;
    bool is_noted = note_verdict(p, v, &err) == 0;
    if (blocks)
        settle_reviewed(p, APPROVAL_DENIED, v->reason, false);
    else if (v->decision == VERDICT_APPROVE && is_noted)
        settle_reviewed(p, APPROVAL_APPROVED, v->reason, false);
    else if (!approval_is_reachable(p->all, p))
        settle_reviewed(p, APPROVAL_DENIED, v->reason, true);
    else
        p->phase = PHASE_PERSON;
}

static void review_one(struct approvals *all, struct approval *p)
{
    struct approval_verdict verdict = {.decision = VERDICT_ESCALATE};
    json_t *request = review_request(p);
    bool is_high = str_eq(json_string_value(json_object_get(request, "default_risk")), "high");
    p->phase = PHASE_REVIEWED;
    p->refs++;
    (void)pthread_mutex_unlock(&all->lock);
    all->options.review(all->options.context, request, &verdict);
    json_decref(request);
    if (is_high && verdict.decision == VERDICT_APPROVE) {
        verdict.decision = VERDICT_ESCALATE;
        (void)snprintf(verdict.reason, sizeof(verdict.reason),
            "private data and untrusted text were read, and this can carry data out: only a "
            "person may approve it");
    }
    (void)pthread_mutex_lock(&all->lock);
    take_verdict(p, &verdict);
    json_t *news = p->id[0] ? approval_view(all, p->id) : NULL;
    approval_unref_locked(p);
    (void)pthread_mutex_unlock(&all->lock);
    approval_tell(all, news);
    (void)pthread_mutex_lock(&all->lock);
}

static void *serve(void *context)
{
    struct approvals *all = context;
    (void)pthread_mutex_lock(&all->lock);
    while (!all->is_closing) {
        struct approval *p = next_review(all);
        if (p)
            review_one(all, p);
        else
            (void)pthread_cond_wait(&all->has_review, &all->lock);
    }
    (void)pthread_mutex_unlock(&all->lock);
    return NULL;
}

int review_start(struct approvals *all)
{
    if (!all->options.review)
        return 0;
    int r = 0;
    while (r == 0 && all->reviewer_count < REVIEWERS) {
        r = thread_start(&all->reviewers[all->reviewer_count], serve, all);
        all->reviewer_count += r == 0;
    }
    return r;
}

void review_stop(struct approvals *all)
{
    (void)pthread_mutex_lock(&all->lock);
    all->is_closing = true;
    (void)pthread_cond_broadcast(&all->has_review);
    (void)pthread_mutex_unlock(&all->lock);
    while (all->reviewer_count)
        (void)pthread_join(all->reviewers[--all->reviewer_count], NULL);
}
