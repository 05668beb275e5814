/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Approvals of effects: asks the pipeline (ruling.h), and if the pipeline cannot decide, a
 * reviewer or a person. Any thread may call any function.
 *
 *   struct approval *approval;
 *   int r = approvals_ask(approvals, &effect, &asker, &approval, err);
 *   if (r == 0)
 *       r = approval_wait(approval, cancel_fd, err);    0: the effect may happen now, once
 *   approval_drop(approval);
 *
 * A caller with a poll loop of its own watches approval_fd() and calls approval_verdict() when
 * it is readable. Decisions are kept in SQLite, together with a log in which every row has the
 * hash of the row before. */

#include "approval/ruling.h"
#include "base/id.h"
#include "base/strv.h"
#include "store/approval_store.h"

#include <stdint.h>

struct approvals;
struct approval; /* one question, from approvals_ask() to approval_drop() */

enum approval_state {
    APPROVAL_PENDING,
    APPROVAL_APPROVED,
    APPROVAL_DENIED,
    APPROVAL_EXPIRED, /* nobody answered within approval_timeout_s */
    APPROVAL_LOST,    /* the asker is gone: the box, its client, or the server */
    APPROVAL_STATE_COUNT
};
const char *approval_state_name(enum approval_state state);
int approval_state_find(const char *name); /* -ENOENT */

enum approval_scope { SCOPE_ONCE, SCOPE_SESSION, SCOPE_ALWAYS, APPROVAL_SCOPE_COUNT };
const char *approval_scope_name(enum approval_scope scope);
int approval_scope_find(const char *name); /* -ENOENT */

/* The verdict of a reviewer (docs/approvals.md), after all checks. */
struct approval_verdict {
    enum { VERDICT_ESCALATE, VERDICT_APPROVE, VERDICT_DENY } decision;
    char risk[12]; /* "unknown" when it was not given */
    double confidence;
    char reason[512];
};

/* Asks the reviewer. `request` is the JSON object that it sees. Runs on a thread of approvals
 * and may take until the reviewer's timeout. */
typedef void approval_review(
    void *context, const json_t *request, struct approval_verdict *ret);

/* Tells the webhook about an approval that waits for a person, or was decided. Must not
 * block. */
typedef void approval_announce(void *context, const json_t *approval);

struct approvals_options {
    const char *path; /* of the database; NULL: in memory, for a program without a server */
    enum approval_mode mode;
    uint64_t timeout_ms;          /* approval_timeout_s */
    const struct strv *approvers; /* names of keys; empty: owners decide. Borrowed */
    approval_review *review;      /* NULL: no reviewer; smart and gated ask a person */
    approval_announce *announce;  /* NULL: no webhook. A webhook makes a person reachable */
    void *context;                /* of the two functions above */
};

/* Opens the store. Approvals that were pending when the last server ended become lost. */
int approvals_open(
    const struct approvals_options *options, struct approvals **ret, struct err *err);
void approvals_close(struct approvals *approvals); /* accepts NULL */

/* How long one run or exec may wait for all its approvals together while its wall time stands
 * still: a few times approval_timeout_s. */
uint64_t approvals_wait_max_ms(const struct approvals *approvals);

/* Call about twice a second: ends the questions that were not answered in time. */
void approvals_tick(struct approvals *approvals);

/* --- asking */

/* Where an effect comes from. Texts and values are borrowed, and may be NULL. */
struct approval_asker {
    const char *owner;     /* name of the key, "" for none */
    const char *run;       /* run_... */
    const char *session;   /* ses_...: grants for the session bind it */
    const char *execution; /* exec_... of `execute` */
    bool is_answerable;  /* the asker brings the question to a person by itself: the MCP client
                            declared elicitation, or the call came by `execute` */
    bool by_rule_only;   /* only a rule asks; without one the effect is allowed */
    bool is_once;        /* earlier grants do not count, and the approval does not last */
    bool brings_preview; /* the reviewer waits for approval_preview() */
    bool
        has_foreign_text; /* its code has read what a stranger wrote, such as a tool's answer */
    /* For the reviewer. */
    const json_t *box;  /* {"network": MODE, "mounts": [NAME...], "secrets": [NAME...]} */
    const char *intent; /* the user's words, from the trusted part of the API */
    const char *code;   /* the statement that made the call and the lines around it */
};

/* An attendant of a run or session, such as an MCP client, brings its questions to a person.
 * While there is one, a person counts as reachable for these questions. */
struct approval_attendance {
    struct approval_attendance *next;
    char place[ID_MAX]; /* the id */
};
void approvals_attend(struct approvals *approvals, struct approval_attendance *attendance);
void approvals_unattend(struct approvals *approvals, struct approval_attendance *attendance);

/* The questions of a run or session that wait for a person, the oldest first: a list of {"id",
 * "summary", "effect"}, or NULL when there is none. The caller owns it. */
json_t *approvals_of(struct approvals *approvals, const char *place);

/* Asks. On success the caller owns *ret, whose state may be decided already: then there was no
 * question, and approval_id() is "". ERR_BUSY when the key has too many questions pending. */
int approvals_ask(struct approvals *approvals, const struct effect *effect,
    const struct approval_asker *asker, struct approval **ret, struct err *err);

/* Returns what the pipeline would decide about this effect now. Asks nothing and writes
 * nothing. */
enum ruling_kind approvals_ruling(struct approvals *approvals, const struct effect *effect,
    const struct approval_asker *asker);

/* approval_awaits_preview(): whether the reviewer waits for a preview from the asker.
 * approval_preview() takes the preview: what the code does after the effect, or why that is not
 * known. The preview informs the reviewer and decides nothing. */
bool approval_awaits_preview(struct approval *approval);
void approval_preview(struct approval *approval, json_t *preview);

const char *approval_id(const struct approval *approval);

/* Becomes and stays readable when the approval is no longer pending. */
int approval_fd(const struct approval *approval);

/* 0 when the effect may happen, -EAGAIN while it is pending, else -EPERM with ERR_DENIED or
 * ERR_APPROVAL_UNAVAILABLE and a message for the program. */
int approval_verdict(struct approval *approval, struct err *err);

/* Waits. As approval_verdict(), or -ECANCELED when cancel_fd (or -1) becomes readable. */
int approval_wait(struct approval *approval, int cancel_fd, struct err *err);

/* {"id", "state", "effect"}, as answers list it. The caller owns it. */
json_t *approval_json(struct approval *approval);

/* The caller no longer waits: if the approval is pending, it becomes lost. approval_drop() also
 * ends the handle, and accepts NULL. */
void approval_leave(struct approval *approval);
void approval_drop(struct approval *approval);

/* --- deciding */

/* The caller that looks at approvals or decides them. */
struct approval_viewer {
    const char *name; /* of the key, "" for none */
    bool is_operator;
};

struct approval_decision {
    bool is_approved;
    enum approval_scope scope;
    const char *comment; /* or NULL */
    const char *via; /* "elicitation", "resume", "model"; NULL: by the viewer's role: "owner",
                        "approver", "operator" */
};

/* Decides. The first decision wins: the same again succeeds, another one is ERR_CONFLICT. An id
 * that the viewer may not see is ERR_NOT_FOUND. */
int approvals_decide(struct approvals *approvals, const char *id,
    const struct approval_viewer *viewer, const struct approval_decision *decision,
    struct err *err);

/* One approval as GET /v1/approvals/{id} shows it; the caller owns it. */
int approvals_get(struct approvals *approvals, const char *id,
    const struct approval_viewer *viewer, json_t **ret, struct err *err);

/* Lists are at most `limit` rows, and as many as fit into some MiB. The purse (or NULL) counts
 * their memory: -ENOMEM when it may not. The caller owns *ret. */
struct purse;

/* The approvals that the viewer may see, the newest first. `state` of -1: in any state. */
int approvals_list(struct approvals *approvals, const struct approval_viewer *viewer, int state,
    size_t limit, struct purse *purse, json_t **ret);

/* --- following */

/* A client that listens on /v1/approvals/events. While it does, it counts as reachable. */
struct approval_listener {
    struct approval_listener *next;
    struct approval_viewer viewer;
    bool has_begun; /* false: the first news are the pending approvals */
    uint64_t seen;  /* the last change that approvals_news() gave */
};
int approvals_listen(
    struct approvals *approvals, struct approval_listener *listener, struct err *err);
void approvals_unlisten(struct approvals *approvals, struct approval_listener *listener);

/* The number of pending questions, and of listeners. */
void approvals_count(struct approvals *approvals, size_t *ret_pending, size_t *ret_listeners);

/* What has changed since the last call, the oldest first; NULL when nothing has. `change` of
 * each is its number. The caller owns the list. */
json_t *approvals_news(struct approvals *approvals, struct approval_listener *listener);

/* --- rules, grants, log */

/* Whether any rule is about effects of this kind. */
bool approvals_have_rules(struct approvals *approvals, enum effect_kind kind);

json_t *approvals_rules(struct approvals *approvals); /* {"rules": [...]}; the caller owns it */
int approvals_set_rules(struct approvals *approvals, const json_t *rules,
    const struct approval_viewer *viewer, struct err *err);

int approvals_grants(struct approvals *approvals, const struct approval_viewer *viewer,
    struct purse *purse, json_t **ret);
int approvals_revoke(struct approvals *approvals, int64_t grant,
    const struct approval_viewer *viewer, struct err *err);

/* Rows after `after`, the oldest first; of one key, unless the viewer sees all. */
int approvals_log(struct approvals *approvals, const struct approval_viewer *viewer,
    int64_t after, size_t limit, struct purse *purse, json_t **ret);

/* Whether the viewer sees the rows of all keys, so that none may be missing. */
bool approvals_sees_all(
    const struct approvals *approvals, const struct approval_viewer *viewer);

/* Whether the viewer may decide about the approvals of `owner`; whether it may see them. */
bool approvals_may_decide(
    const struct approvals *approvals, const struct approval_viewer *viewer, const char *owner);
bool approvals_may_see(
    const struct approvals *approvals, const struct approval_viewer *viewer, const char *owner);
