/* SPDX-License-Identifier: Apache-2.0 */

/* Removes old rows, and rows of the owners that have most (run_store_expire()). */

#include "store/internal.h"

#include "base/alloc.h"

#include <stdlib.h>

/* The rows and bytes that an owner has in the database. */
struct share {
    char *owner;
    uint64_t bytes;
};

struct shares {
    struct share *list; /* the largest first */
    size_t count;
    uint64_t total;
};

static void shares_done(struct shares *shares)
{
    for (size_t i = 0; i < shares->count; i++)
        free(shares->list[i].owner);
    free(shares->list);
}

static int read_shares(struct run_store *s, struct shares *ret)
{
    sqlite3_stmt *sql = s->sql[SQL_SHARES];
    int r;
    while ((r = sqlite3_step(sql)) == SQLITE_ROW) {
        uint64_t bytes = (uint64_t)sqlite3_column_int64(sql, 1);
        ret->list = xreallocarray(ret->list, ret->count + 1, sizeof(*ret->list));
        ret->list[ret->count++] = (struct share){
            .owner = xstrdup((const char *)sqlite3_column_text(sql, 0)), .bytes = bytes};
        ret->total += bytes;
    }
    (void)sqlite3_reset(sql);
    return r == SQLITE_DONE ? SQLITE_OK : r;
}

/* The most that one owner may have, so that all together have at most max_bytes. An owner
 * that has less leaves the rest of its part to the others. */
static uint64_t find_level(const struct shares *shares, uint64_t max_bytes)
{
    uint64_t left = max_bytes;
    for (size_t i = shares->count; i > 0; i--) {
        if (shares->list[i - 1].bytes > left / i)
            return left / i;
        left -= shares->list[i - 1].bytes;
    }
    return UINT64_MAX;
}

/* Removes the oldest rows of an owner until `bytes` bytes are gone, and adds up their bytes. */
static int remove_oldest(
    struct run_store *s, const char *owner, uint64_t bytes, uint64_t *removed)
{
    sqlite3_stmt *sql = s->sql[SQL_OLDEST];
    int r;
    (void)sqlite3_bind_text(sql, 1, owner, -1, SQLITE_STATIC);
    (void)sqlite3_bind_int64(sql, 2, (sqlite3_int64)bytes);
    while ((r = sqlite3_step(sql)) == SQLITE_ROW)
        *removed += (uint64_t)sqlite3_column_int64(sql, 0);
    (void)sqlite3_reset(sql);
    (void)sqlite3_clear_bindings(sql);
    return r == SQLITE_DONE ? SQLITE_OK : r;
}

/* Brings the owners down to the level, the largest first. Stops as soon as the total fits: a
 * large row may free more than its owner's part. */
static int shrink_owners(struct run_store *s, const struct shares *shares, uint64_t max_bytes)
{
    uint64_t excess = shares->total > max_bytes ? shares->total - max_bytes : 0;
    uint64_t level = find_level(shares, max_bytes), removed = 0;
    const struct share *end = shares->list + shares->count;
    int r = SQLITE_OK;
    for (const struct share *share = shares->list;
         r == SQLITE_OK && share < end && share->bytes > level && removed < excess; share++) {
        uint64_t over = share->bytes - level, left = excess - removed;
        r = remove_oldest(s, share->owner, over < left ? over : left, &removed);
    }
    return r;
}

static int remove_old(struct run_store *s, int64_t before_ms)
{
    sqlite3_stmt *sql = s->sql[SQL_EXPIRE];
    (void)sqlite3_bind_int64(sql, 1, before_ms);
    int r = sqlite3_step(sql);
    (void)sqlite3_reset(sql);
    return r == SQLITE_DONE ? SQLITE_OK : r;
}

/* In one transaction, and each owner's rows in one statement: the lock is held all the time. */
void store_expire(struct run_store *s, const struct expiry *expiry)
{
    struct shares shares = {0};
    (void)pthread_mutex_lock(&s->db_lock);
    int before = sqlite3_total_changes(s->db);
    int r = sqlite3_exec(s->db, "BEGIN", NULL, NULL, NULL);
    if (r == SQLITE_OK)
        r = remove_old(s, expiry->before_ms);
    if (r == SQLITE_OK)
        r = read_shares(s, &shares);
    if (r == SQLITE_OK)
        r = shrink_owners(s, &shares, expiry->max_bytes);
    store_end_transaction(s, &r);
    if (r == SQLITE_OK && sqlite3_total_changes(s->db) != before)
        (void)sqlite3_exec(s->db, "PRAGMA incremental_vacuum", NULL, NULL, NULL);
    (void)pthread_mutex_unlock(&s->db_lock);
    shares_done(&shares);
}
