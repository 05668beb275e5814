/* SPDX-License-Identifier: Apache-2.0 */

/* The end of a question. approval_settle() makes every change of state: first on the disk, then
 * for the caller that waits, so nothing happens that the log does not have. */

#include "approval/internal.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/str.h"
#include "base/utf8.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>

static const char *const state_names[APPROVAL_STATE_COUNT] = {[APPROVAL_PENDING] = "pending",
    [APPROVAL_APPROVED] = "approved",
    [APPROVAL_DENIED] = "denied",
    [APPROVAL_EXPIRED] = "expired",
    [APPROVAL_LOST] = "lost"};
static const char *const scope_names[APPROVAL_SCOPE_COUNT] = {
    [SCOPE_ONCE] = "once", [SCOPE_SESSION] = "session", [SCOPE_ALWAYS] = "always"};

const char *approval_state_name(enum approval_state state)
{
    return state_names[state];
}

const char *approval_scope_name(enum approval_scope scope)
{
    return scope_names[scope];
}

static int find(const char *const *names, int count, const char *name)
{
    for (int i = 0; i < count; i++) {
        if (str_eq(names[i], name))
            return i;
    }
    return -ENOENT;
}

int approval_state_find(const char *name)
{
    return find(state_names, APPROVAL_STATE_COUNT, name);
}

int approval_scope_find(const char *name)
{
    return find(scope_names, APPROVAL_SCOPE_COUNT, name);
}

/* --- permission to decide */

bool approvals_may_decide(
    const struct approvals *all, const struct approval_viewer *viewer, const char *owner)
{
    if (all->approvers.count)
        return viewer->name[0] && strv_has(&all->approvers, viewer->name);
    return viewer->is_operator || str_eq(viewer->name, owner);
}

bool approvals_may_see(
    const struct approvals *all, const struct approval_viewer *viewer, const char *owner)
{
    return viewer->is_operator || str_eq(viewer->name, owner) ||
           approvals_may_decide(all, viewer, owner);
}

bool approval_is_reachable(const struct approvals *all, const struct approval *p)
{
    if (p->is_answerable || all->options.announce)
        return true;
    for (const struct approval_listener *l = all->listeners; l; l = l->next) {
        if (approvals_may_decide(all, &l->viewer, p->owner))
            return true;
    }
    const struct approval_viewer owner = {.name = p->owner};
    for (const struct approval_attendance *a = all->attended; a; a = a->next) {
        if (str_eq(a->place, approval_place(p)) && approvals_may_decide(all, &owner, p->owner))
            return true;
    }
    return false;
}

struct approval *approval_find_pending(struct approvals *all, const char *id)
{
    struct approval *p = all->pending;
    while (p && !str_eq(p->id, id))
        p = p->next;
    return p;
}

/* --- settling */

static void leave_list(struct approval *p)
{
    struct approval **at = &p->all->pending;
    while (*at && *at != p)
        at = &(*at)->next;
    if (*at)
        *at = p->next;
    p->next = NULL;
}

static struct grant_row make_grant(const struct approval *p, const struct settlement *s)
{
    return (struct grant_row){.owner = p->owner,
        .session = s->scope == SCOPE_SESSION ? p->session : "",
        .effect = p->effect.text,
        .digest = p->effect.digest,
        .decided_by = s->by,
        .via = s->via,
        .created_ms = clock_wall_ms()};
}

int approval_settle(struct approval *p, const struct settlement *s, struct err *err)
{
    bool is_decided = s->state == APPROVAL_APPROVED || s->state == APPROVAL_DENIED;
    const char *scope = is_decided ? approval_scope_name(s->scope) : "";
    const struct approval_row row = {.id = p->id,
        .state = (char *)approval_state_name(s->state),
        .scope = (char *)scope,
        .decided_by = (char *)s->by,
        .via = (char *)s->via,
        .comment = (char *)(s->comment ? s->comment : ""),
        .decided_ms = clock_wall_ms()};
    const struct grant_row grant = make_grant(p, s);
    bool has_grant = s->state == APPROVAL_APPROVED && s->scope != SCOPE_ONCE;
    json_t *data = json_pack("{s:O, s:s, s:s, s:s, s:s, s:s}", "effect", p->effect.json,
        "scope", scope, "by", s->by, "via", s->via, "comment", row.comment, "reason",
        s->reason ? s->reason : "");
    cleanup_free char *text = json_dumps(data, JSON_COMPACT | JSON_SORT_KEYS);
    json_decref(data);
    struct log_row log = {.owner = p->owner,
        .place = approval_place(p),
        .approval = p->id,
        .event = row.state,
        .data = text ? text : "{}"};
    int r = approval_store_decide(p->all->store, &row, has_grant ? &grant : NULL, &log, err);
    if (r < 0 && s->state == APPROVAL_APPROVED)
        return r; /* an approval that cannot be written does not count */
    if (r < 0)
        log_event(LOG_WARN, "the end of an approval could not be written", "id", p->id,
            "reason", err ? err->message : "", (char *)NULL);
    leave_list(p);
    p->phase = PHASE_OVER;
    p->state = s->state;
    p->is_unavailable = s->is_unavailable;
    (void)snprintf(p->reason, sizeof(p->reason), "%s",
        s->reason    ? s->reason
        : s->comment ? s->comment
                     : "");
    p->reason[utf8_floor(p->reason, strlen(p->reason))] = '\0';
    (void)eventfd_write(p->fd, 1);
    return 0;
}

/* --- a person decides */

static const char *via_of(const struct approvals *all, const struct approval_viewer *viewer,
    const char *owner, const struct approval_decision *d)
{
    if (d->via)
        return d->via;
    if (all->approvers.count)
        return "approver";
    return str_eq(viewer->name, owner) ? "owner" : "operator";
}

static int not_found(struct err *err, const char *id)
{
    return err_set(err, ERR_NOT_FOUND, ENOENT, "there is no approval `%.64s`", id);
}

/* The approval is decided already. The same decision again is no error. */
static int compare(
    const struct approval_row *row, const struct approval_decision *d, struct err *err)
{
    const char *state =
        approval_state_name(d->is_approved ? APPROVAL_APPROVED : APPROVAL_DENIED);
    if (str_eq(row->state, state) &&
        (!d->is_approved || str_eq(row->scope, approval_scope_name(d->scope))))
        return 0;
    return err_set(err, ERR_CONFLICT, EALREADY,
        "the approval `%s` is %s already%s%s; the first decision counts", row->id, row->state,
        row->scope[0] ? ", scope " : "", row->scope);
}

static int check_decision(const struct approval *p, const struct approval_decision *d,
    const char *via, struct err *err)
{
    if (d->is_approved && d->scope == SCOPE_SESSION && !p->session[0])
        return err_field(err, "scope", "this effect comes from no session; use once or always");
    if (d->is_approved && d->scope != SCOPE_ONCE && p->is_once)
        return err_field(err, "scope",
            "what this runs is known only when it runs, so it can be approved once only");
    if (p->require_human && str_eq(via, "model"))
        return err_set(err, ERR_FORBIDDEN, EPERM,
            "a rule wants a person to decide this; a model may not relay the answer");
    return 0;
}

/* Lock held. */
static int decide(struct approvals *all, const struct approval_row *row,
    const struct approval_viewer *viewer, const struct approval_decision *d, struct err *err)
{
    const char *via = via_of(all, viewer, row->owner, d);
    struct approval *p = approval_find_pending(all, row->id);
    if (!approvals_may_decide(all, viewer, row->owner))
        return err_set(err, ERR_FORBIDDEN, EPERM,
            "this key may see the approval but not decide about it; see `approvers`");
    if (!p)
        return compare(row, d, err);
    int r = check_decision(p, d, via, err);
    if (r < 0)
        return r;
    const struct settlement s = {.state = d->is_approved ? APPROVAL_APPROVED : APPROVAL_DENIED,
        .scope = d->is_approved ? d->scope : SCOPE_ONCE,
        .by = viewer->name,
        .via = via,
        .comment = d->comment,
        .reason = d->is_approved ? NULL
                  : d->comment   ? d->comment
                                 : "denied"};
    return approval_settle(p, &s, err);
}

int approvals_decide(struct approvals *all, const char *id,
    const struct approval_viewer *viewer, const struct approval_decision *d, struct err *err)
{
    CLEANUP(approval_row_done) struct approval_row row = {0};
    json_t *news = NULL;
    (void)pthread_mutex_lock(&all->lock);
    int r = approval_store_get(all->store, id, &row);
    if (r == 0 && !approvals_may_see(all, viewer, row.owner))
        r = -ENOENT;
    if (r < 0)
        r = not_found(err, id);
    else
        r = decide(all, &row, viewer, d, err);
    if (r == 0 && str_eq(row.state, "pending"))
        news = approval_view(all, id);
    (void)pthread_mutex_unlock(&all->lock);
    approval_tell(all, news);
    return r;
}
