/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Results of runs in SQLite, so that they outlive the server. One file in WAL mode and one
 * connection behind a lock. A thread of the store writes finished runs in batches. Any thread
 * may call any function. */

#include "base/answer.h"
#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct run_row {
    char *id;
    char *owner;         /* name of the key, "" for none */
    char *status;        /* "queued" until the run ends */
    char *language;      /* "" when a server without this column wrote the row */
    int64_t created_ms;  /* since 1970 */
    int64_t finished_ms; /* 0 until the run ends */
    int64_t wall_ms;     /* from the start of the run to its end; -1: it did not start */
    bool exited;
    int exit_code;          /* valid when exited */
    struct answer *answer;  /* JSON; NULL when the run was lost */
    struct answer *request; /* JSON; NULL when it is not kept */
};
void run_row_done(struct run_row *row); /* for a row that is a keeper of its answer
                                          and request */

struct run_store;

/* Opens or makes the file. Unfinished runs are marked as lost: finished now, status
 * internal_error, no answer. A file that is not a database is moved aside (NAME.bad). */
int run_store_open(struct run_store **ret, const char *path, struct err *err);

/* Writes pending rows, removes expired ones, and closes. */
void run_store_close(struct run_store *store);

/* Writes the row now; ERR_NO_SPACE when the disk is full. */
int run_store_put(struct run_store *store, const struct run_row *row, struct err *err);

/* Takes the row, which keeps its answer (answer_keep()), and lets the writer thread write it.
 * Readers see the row at once. A row with STORE_WITH_OTHERS may wait a moment, to be written
 * together with others. When too many rows or bytes are pending, this row is written before the
 * call returns. */
enum run_store_haste { STORE_PROMISED, STORE_WITH_OTHERS };
void run_store_put_later(
    struct run_store *store, struct run_row *row, enum run_store_haste haste);

/* Reads a row, which becomes a user of its answer. -ENOENT when there is none, -ENOMEM when the
 * ledger refuses the answer. With a NULL ledger the bytes are not counted. */
int run_store_get(struct run_store *store, const char *id, struct ledger *ledger, int owner,
    struct run_row *ret);

/* The caller that asks for a row, and the owner that its answer counts for. */
struct run_asker {
    const char *name; /* of the key; NULL: anybody */
    struct ledger *ledger;
    int index; /* in the ledger */
};

/* The same, but -ENOENT for a row of another, of which nothing is read or counted. */
int run_store_get_own(struct run_store *store, const char *id, const struct run_asker *asker,
    struct run_row *ret);
void run_row_release(struct run_row *row); /* for a row from run_store_get() */

/* Reads the request of a row, of which the caller becomes a user. The same errors. */
int run_store_get_request(struct run_store *store, const char *id,
    const struct run_asker *asker, struct answer **ret);

/* Which runs a list has: the newest ones that were created before a position. */
struct run_query {
    const char *owner;     /* NULL: anybody */
    const char *status;    /* NULL: any */
    const char *language;  /* NULL: any */
    int64_t before_ms;     /* the position: created_ms and id of a row; INT64_MAX and "" for */
    const char *before_id; /* the beginning */
    int64_t expired_ms;    /* rows that finished before this time are not listed; those that did
                              not finish are */
    size_t limit;          /* at most RUN_LIST_MAX */
};
enum { RUN_LIST_MAX = 101 }; /* a page of RUN_PAGE_MAX, and one more */

/* Rows without answers, the newest first. */
struct run_list {
    struct run_row rows[RUN_LIST_MAX];
    size_t count;
};
void run_list_done(struct run_list *list);

/* Adds a copy of the row to the list if the query asks for it and it is among the newest rows.
 * Keeps the list in order. Ignores a row whose id is already in the list. */
void run_list_offer(
    struct run_list *list, const struct run_query *query, const struct run_row *row);

/* Calls run_list_offer() for every finished row of the store. Does not read answers. */
int run_store_list(struct run_store *store, const struct run_query *query,
    struct run_list *list, struct err *err);

/* Removes a row, also one that is not written yet. */
void run_store_remove(struct run_store *store, const char *id);

/* Asks the writer to remove the rows that finished before that time. Then it removes the oldest
 * row of the owner with the most bytes, again and again, until all answers together have at
 * most max_bytes. Does not wait for the writer. */
void run_store_expire(struct run_store *store, int64_t before_ms, uint64_t max_bytes);

/* The number of failed writes so far, and the reason of the last one. */
uint64_t run_store_failures(struct run_store *store, char *why, size_t why_size);
