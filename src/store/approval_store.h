/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Approvals, grants, rules and the log of decisions in SQLite. One file and one connection; the
 * caller holds a lock of its own around every call. Every change and its row of the log are one
 * transaction, which is on the disk when the call returns.
 *
 * The log (proto/approval_log.h) is append-only: triggers refuse to change or remove a row. */

#include "base/err.h"
#include "proto/approval_log.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct approval_store;

/* All texts are owned by the row, and never NULL. */
struct approval_row {
    char *id;
    char *owner;
    char *state;
    char *effect; /* canonical form */
    char *digest;
    char *reason;
    char *reviewer; /* JSON, or "" */
    char *run;
    char *session;
    char *execution;
    char *scope; /* "" until it is decided */
    char *decided_by;
    char *via;
    char *comment;
    int64_t created_ms, expires_ms, decided_ms;
    int64_t changed; /* seq of the log row of its last change */
    bool require_human;
};
void approval_row_done(struct approval_row *row);

struct grant_row {
    int64_t id;
    const char *owner;
    const char *session; /* "": without end */
    const char *effect;  /* canonical form */
    const char *digest;
    const char *decided_by;
    const char *via;
    int64_t created_ms;
};

/* Opens or makes the file; a NULL path is a database in memory. Grants of sessions are removed:
 * no session outlives its server. */
int approval_store_open(struct approval_store **ret, const char *path, struct err *err);
void approval_store_close(struct approval_store *store);

/* Each of these adds `log` in the same transaction. log->seq, the hashes and time_ms are filled
 * in. */
int approval_store_insert(struct approval_store *store, const struct approval_row *row,
    struct log_row *log, struct err *err);

/* Ends a pending approval, and adds a grant if there is one. -EALREADY when it is not pending
 * any more; then nothing is written. */
int approval_store_decide(struct approval_store *store, const struct approval_row *row,
    const struct grant_row *grant, struct log_row *log, struct err *err);

/* Notes the verdict of the reviewer about a pending approval. */
int approval_store_review(struct approval_store *store, const char *id, const char *reviewer,
    struct log_row *log, struct err *err);
int approval_store_log(struct approval_store *store, struct log_row *log, struct err *err);
int approval_store_set_rules(
    struct approval_store *store, const char *text, struct log_row *log, struct err *err);
int approval_store_revoke(
    struct approval_store *store, int64_t grant, struct log_row *log, struct err *err);

/* The caller ends *ret. -ENOENT when there is none. */
int approval_store_get(struct approval_store *store, const char *id, struct approval_row *ret);

/* Each calls `each` for its rows, which are valid during the call. */
struct approval_query {
    const char *owner; /* NULL: anybody's */
    const char *state; /* NULL: any */
    int64_t after;     /* changed after this seq, in that order; -1: the newest first */
    size_t limit;
};
typedef void approval_each(void *context, const struct approval_row *row);
int approval_store_list(struct approval_store *store, const struct approval_query *query,
    approval_each *each, void *context);

struct log_query {
    const char *owner; /* NULL: anybody's */
    const char *place; /* NULL: any place; with a place the newest rows come first */
    int64_t after;
    size_t limit;
};
typedef void log_each(void *context, const struct log_row *row);
int approval_store_log_list(
    struct approval_store *store, const struct log_query *query, log_each *each, void *context);

typedef void grant_each(void *context, const struct grant_row *row);
int approval_store_grants(
    struct approval_store *store, const char *owner, grant_each *each, void *context);

/* Whether there is a grant, without end or for the session ("" for none). *ret_is_human:
 * there is one that no model relayed. */
bool approval_store_find_grant(struct approval_store *store, const char *owner,
    const char *session, const char *digest, bool *ret_is_human);

/* The rules as they were set; NULL when they never were. The caller frees them. */
char *approval_store_rules(struct approval_store *store);

/* The seq of the last row of the log. */
int64_t approval_store_last(struct approval_store *store);

/* Removes approvals that were decided before that time; the log keeps its rows. */
void approval_store_forget(struct approval_store *store, int64_t before_ms);
