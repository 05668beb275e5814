/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Results of runs in SQLite, so that they outlive the server. One file, WAL, one connection
 * behind a lock; finished runs are written by a thread of its own, a batch at a time. Any
 * thread may call any function. */

#include "base/answer.h"
#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

struct run_row {
    char *id;
    char *owner;           /* name of the key, "" for none */
    char *status;          /* "queued" until it ends */
    int64_t created_ms;    /* since 1970 */
    int64_t finished_ms;   /* 0 until it ends */
    struct answer *answer; /* JSON; NULL when the run was lost */
};
void run_row_done(struct run_row *row); /* of one that keeps its answer */

struct run_store;

/* Opens or makes the file. Runs that were not finished are marked lost: finished now, status
 * internal_error, no answer. A file that is not a database is moved aside (NAME.bad). */
int run_store_open(struct run_store **ret, const char *path, struct err *err);

/* Writes what is pending, removes what is to expire, and closes. */
void run_store_close(struct run_store *store);

/* Writes now; ERR_NO_SPACE when the disk is full. */
int run_store_put(struct run_store *store, const struct run_row *row, struct err *err);

/* Takes the row (it is a keeper of the answer) and writes it as soon as the disk is free; reads
 * see it at once. One that was not promised may wait a moment for others, to be written with
 * them; a large one is written before this returns. */
enum run_store_haste { STORE_PROMISED, STORE_WITH_OTHERS };
void run_store_put_later(
    struct run_store *store, struct run_row *row, enum run_store_haste haste);

/* -ENOENT when there is none, -ENOMEM when the ledger (NULL: nobody counts) refuses its answer,
 * of which the row is a user then. */
int run_store_get(struct run_store *store, const char *id, struct ledger *ledger, int owner,
    struct run_row *ret);

/* Who asks for a row, and in whose name its answer is counted. */
struct run_asker {
    const char *name; /* of the key; NULL: anybody */
    struct ledger *ledger;
    int index; /* in the ledger */
};

/* The same, but -ENOENT for a row of another, of which nothing is read or counted. */
int run_store_get_own(struct run_store *store, const char *id, const struct run_asker *asker,
    struct run_row *ret);
void run_row_release(struct run_row *row); /* of one that run_store_get() made */

/* Also one that is not written yet. */
void run_store_remove(struct run_store *store, const char *id);

/* Has the writer remove what finished before that time, then, until all answers together have
 * at most max_bytes, the oldest of whichever owner has most. Does not wait for it. */
void run_store_expire(struct run_store *store, int64_t before_ms, uint64_t max_bytes);

/* How many writes failed so far, and why the last one did. */
uint64_t run_store_failures(struct run_store *store, char *why, size_t why_size);
