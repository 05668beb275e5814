/* SPDX-License-Identifier: Apache-2.0 */

/* Pauses of an execution (execution.h): raised by its work, or for an effect that waits for an
 * approval. A pause is decided once: its reply is taken away under the lock, and called without
 * it. */

#include "mcp/execution/internal.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/log.h"
#include "base/str.h"
#include "base/utf8.h"
#include "state/state.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The reply of a pause about an effect: approvals know the decision. */
static void by_approval(void *context, const char *action, const json_t *content)
{
}

void execution_attend(struct execution *e, const char *place)
{
    executions_lock(e->all);
    (void)snprintf(e->attendance.place, sizeof(e->attendance.place), "%s", place);
    executions_unlock(e->all);
    approvals_attend(mcp_state(e->all->mcp)->approvals, &e->attendance);
}

static void unattend(struct execution *e)
{
    if (e->attendance.place[0])
        approvals_unattend(mcp_state(e->all->mcp)->approvals, &e->attendance);
    executions_lock(e->all);
    e->attendance.place[0] = '\0';
    executions_unlock(e->all);
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

/* All members of an effect that have a value, on one line: an approver must see all that
 * happens. The caller frees it. */
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

/* The question as the client sees it. The effect is data of a stranger. */
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

/* Marks a pause as decided. Its id is still known; its question is not kept, because a client
 * may let an execution pause often, and keep many. */
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

void pauses_follow(struct execution *e)
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

/* A decision that does not count (a rule wants a person, or others decide) leaves the
 * question open. */
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

void pauses_end(struct execution *e)
{
    unattend(e);
    for (struct pause *p = e->pauses; p; p = p->next) {
        executions_lock(e->all);
        execution_reply *reply = take_reply(p);
        executions_unlock(e->all);
        if (reply)
            reply(p->context, "cancel", NULL);
    }
}

void pauses_free(struct execution *e)
{
    while (e->pauses) {
        struct pause *p = e->pauses;
        e->pauses = p->next;
        json_decref(p->interaction);
        free(p);
    }
}

bool pauses_have(const struct execution *e, const char *id, unsigned *ret_number)
{
    for (const struct pause *p = e->pauses; p; p = p->next) {
        *ret_number = p->number;
        if (str_eq(p->id, id))
            return true;
    }
    return false;
}

const struct pause *pauses_open(const struct execution *e)
{
    const struct pause *p = e->pauses;
    while (p && !p->reply)
        p = p->next;
    return p;
}

int execution_pause(
    struct execution *e, json_t *interaction, execution_reply *reply, void *context)
{
    struct executions *all = e->all;
    if (e->pause_count >= EXECUTION_PAUSES) {
        json_decref(interaction);
        return -ENOBUFS;
    }
    executions_lock(all);
    struct pause *p = add_pause(e, interaction);
    p->reply = reply;
    p->context = context;
    (void)pthread_cond_broadcast(&all->news);
    executions_unlock(all);
    return 0;
}

bool execution_decide(struct execution *e, unsigned pause, const char *action,
    const json_t *content, const char *via)
{
    executions_lock(e->all);
    struct pause *p = e->pauses;
    while (p && p->number != pause)
        p = p->next;
    execution_reply *reply = p ? take_reply(p) : NULL;
    executions_unlock(e->all);
    if (reply && p->approval[0])
        decide_approval(e, p, action, via);
    else if (reply)
        reply(p->context, action, content);
    return reply;
}

bool execution_is_open(struct execution *e, unsigned pause)
{
    executions_lock(e->all);
    pauses_follow(e);
    const struct pause *p = e->pauses;
    while (p && p->number != pause)
        p = p->next;
    bool is_open = !e->is_done && p && p->reply;
    executions_unlock(e->all);
    return is_open;
}
