/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The inside of the store, for the files of this folder. */

#include "store/run_store.h"

#include <pthread.h>
#include <sqlite3.h>
#include <stdbool.h>

enum {
    SQL_PUT,
    SQL_GET,
    SQL_GET_REQUEST,
    SQL_EXPIRE,
    SQL_SHARES,
    SQL_OLDEST,
    SQL_LOST,
    SQL_REMOVE,
    SQL_LIST_OWN,
    SQL_LIST_ALL,
    SQL_COUNT
};

struct pending {
    struct pending *next;
    struct run_row row;
    bool is_removed; /* set with both locks held; either lock is enough to read it */
};

/* The arguments of run_store_expire(), for the writer. */
struct expiry {
    bool is_due;
    int64_t before_ms;
    uint64_t max_bytes;
};

struct run_store {
    sqlite3 *db;
    sqlite3_stmt *sql[SQL_COUNT];
    pthread_mutex_t db_lock;
    pthread_mutex_t list_lock; /* never held while the database works */
    pthread_cond_t changed;
    struct pending *first, *last;
    size_t pending_count; /* includes the batch being written */
    size_t pending_bytes;
    bool is_hasty;           /* a row of the list was promised, or the list is long enough */
    struct pending *writing; /* the batch that the writer is at */
    struct expiry expiry;
    bool closing;
    pthread_t writer;
    bool has_writer;
    uint64_t failures;
    char why[128];
};

/* Commits the transaction, or rolls it back after an error. The database's lock is held. */
void store_end_transaction(struct run_store *s, int *r);

/* expire.c: removes the rows that run_store_expire() asked for. */
void store_expire(struct run_store *s, const struct expiry *expiry);
