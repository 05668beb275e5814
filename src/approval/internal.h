/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The inside of approvals, for the files of this folder:
 *
 *   approvals.c  opening, asking, waiting
 *   decide.c     the end of a question: every change of state is made there
 *   view.c       what clients see: approvals, news, rules, grants, log
 *   review.c     the threads that ask the reviewer, and what the reviewer sees */

#include "approval/approval.h"

#include <pthread.h>

enum {
    PENDING_PER_KEY = 64, /* questions at a time */
    PENDING_MAX = 1024,
    LISTENERS_PER_KEY = 16,
    SO_FAR = 12,            /* last effects that the reviewer sees */
    SO_FAR_BYTES = 1 << 20, /* bytes of the log that are searched for them */
    LOG_PAGE = 1000,
    REVIEWERS = 4,                 /* threads that ask the reviewer */
    LOG_BYTES_PER_HOUR = 64 << 20, /* bytes that effects of one key may add to the log */
};

enum approval_phase {
    PHASE_PREVIEW,  /* the asker makes a preview for the reviewer */
    PHASE_REVIEW,   /* waits for the reviewer */
    PHASE_REVIEWED, /* the reviewer has it */
    PHASE_PERSON,
    PHASE_OVER,
};

struct approval {
    struct approvals *all;
    struct approval *next; /* of all->pending */
    unsigned refs;         /* of the asker and of the reviewer's thread */
    char id[ID_MAX];       /* "" when it was decided at once */
    struct effect effect;
    char *owner, *run, *session, *execution;
    json_t *box;
    char *intent, *code;
    enum approval_phase phase;
    enum approval_state state;
    bool is_unavailable; /* denied because nobody was reachable */
    bool is_answerable;
    bool by_rule_only;
    bool is_once;
    bool brings_preview;
    bool has_foreign_text;
    json_t *preview; /* or NULL */
    bool require_human;
    char why_asked[256];
    char reason[512]; /* of the decision */
    int64_t created_ms, expires_ms;
    uint64_t deadline_ms; /* the same by clock_ms() */
    int fd;               /* eventfd */
};

/* The bytes that a key has added to the log, which is never shortened. The number falls with
 * time. */
struct log_share {
    struct log_share *next;
    uint64_t bytes;
    uint64_t seen_ms; /* by clock_ms() */
    char owner[];
};

struct approvals {
    pthread_mutex_t lock; /* protects everything below */
    struct log_share *shares;
    struct approvals_options options;
    struct strv approvers;
    struct approval_store *store;
    struct rules rules;
    struct approval *pending;
    struct approval_listener *listeners;
    struct approval_attendance *attended;
    int64_t forgot_ms; /* when old approvals were last removed */

    pthread_cond_t has_review;
    pthread_t reviewers[REVIEWERS];
    size_t reviewer_count;
    bool is_closing;
};

/* All below are called with the lock held. */

/* How a question ends. */
struct settlement {
    enum approval_state state;
    enum approval_scope scope;
    const char *by;
    const char *via;
    const char *comment;
    const char *reason;
    bool is_unavailable;
};

/* Ends a pending approval: in the store, in the log, and for the caller that waits. */
int approval_settle(struct approval *p, const struct settlement *s, struct err *err);

/* Whether a person can answer it now. */
bool approval_is_reachable(const struct approvals *all, const struct approval *p);

void approval_unref_locked(struct approval *p);
struct approval *approval_find_pending(struct approvals *all, const char *id);

/* Adds a row to the log about an approval. `data` is taken. */
int approval_note(struct approval *p, const char *event, json_t *data, struct err *err);

/* The id of the session, run or execution that an effect comes from, or "". */
const char *approval_place(const struct approval *p);

/* The approval as clients see it; the caller owns it. */
json_t *approval_view(struct approvals *all, const char *id);

/* review.c: starts the threads if there is a reviewer; ends them. */
int review_start(struct approvals *all);
void review_stop(struct approvals *all); /* without the lock */

/* The request for the reviewer about a question; the caller owns it. */
json_t *review_request(struct approval *p);

/* Gives a message to the webhook, if there is one. `approval` is taken. Without the lock. */
void approval_tell(struct approvals *all, json_t *approval);
