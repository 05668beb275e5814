/* SPDX-License-Identifier: Apache-2.0 */

/* See run_store.h. All SQL of the run history is here. A commit costs a write to disk, so
 * finished runs wait in a list until the writer thread puts all of them into one transaction. A
 * run that a client will ask for later (async) is written before it is promised. Writing each
 * run by itself would cost a server with one busy client 3 % of its time. */

#include "store/run_store.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"

#include <errno.h>
#include <pthread.h>
#include <sqlite3.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* PENDING_MAX and PENDING_BYTES bound the rows that wait for the writer thread; beyond either
 * bound the caller writes its row itself. The writer waits up to GATHER_MS for GATHER_MAX rows,
 * to write them in one transaction. After a failure that may pass, such as a full disk, it
 * tries again after RETRY_MS. ROW_COST is what a row counts besides its answer, in bytes. */
enum { PENDING_MAX = 4096, PENDING_BYTES = 32 << 20, GATHER_MAX = 64 };
#define ROW_COST "512"
static const uint64_t RETRY_MS = 1000, GATHER_MS = 20;

static const char schema[] =
    /* auto_vacuum first: SQLite ignores it once the journal mode has written the file. */
    "PRAGMA auto_vacuum=INCREMENTAL; PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;"
    "PRAGMA temp_store=MEMORY; PRAGMA secure_delete=ON;"
    "CREATE TABLE IF NOT EXISTS runs (id TEXT PRIMARY KEY, owner TEXT NOT NULL,"
    " status TEXT NOT NULL, created_ms INTEGER NOT NULL, finished_ms INTEGER NOT NULL,"
    " answer BLOB, size INTEGER NOT NULL) STRICT;"
    "CREATE INDEX IF NOT EXISTS runs_finished ON runs (finished_ms);"
    "CREATE INDEX IF NOT EXISTS runs_owner ON runs (owner, finished_ms, size);";

enum { SQL_PUT, SQL_GET, SQL_EXPIRE, SQL_SHARES, SQL_OLDEST, SQL_LOST, SQL_REMOVE, SQL_COUNT };

static const char *const statements[SQL_COUNT] = {
    [SQL_PUT] = "INSERT INTO runs VALUES (?1,?2,?3,?4,?5,?6,?7) ON CONFLICT (id) DO UPDATE SET"
                " status=?3, finished_ms=?5, answer=?6, size=?7",
    [SQL_GET] = "SELECT owner, status, created_ms, finished_ms, length(answer), rowid"
                " FROM runs WHERE id=?1 AND owner=ifnull(?2, owner)",
    [SQL_EXPIRE] = "DELETE FROM runs WHERE finished_ms BETWEEN 1 AND ?1",
    [SQL_SHARES] = "SELECT owner, SUM(size + " ROW_COST ") AS share FROM runs"
                   " WHERE finished_ms > 0 GROUP BY owner ORDER BY share DESC",
    [SQL_OLDEST] = "DELETE FROM runs WHERE rowid IN (SELECT rowid FROM (SELECT rowid,"
                   " SUM(size + " ROW_COST ") OVER (ORDER BY finished_ms, rowid)"
                   " - size - " ROW_COST " AS older FROM runs WHERE owner=?1 AND"
                   " finished_ms > 0) WHERE older < ?2) RETURNING size + " ROW_COST,
    [SQL_LOST] = "UPDATE runs SET status='internal_error', finished_ms=?1 WHERE finished_ms=0",
    [SQL_REMOVE] = "DELETE FROM runs WHERE id=?1",
};

struct pending {
    struct pending *next;
    struct run_row row;
    bool is_removed; /* set with both locks held; either lock is enough to read it */
};

/* What run_store_expire() asks the writer for. */
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
    bool is_hasty;           /* one of the list was promised, or there are enough */
    struct pending *writing; /* the batch that the writer is at */
    struct expiry expiry;
    bool closing;
    pthread_t writer;
    bool has_writer;
    uint64_t failures;
    char why[128];
};

void run_row_done(struct run_row *row)
{
    free(row->id);
    free(row->owner);
    free(row->status);
    answer_drop(row->answer);
    *row = (struct run_row){0};
}

void run_row_release(struct run_row *row)
{
    answer_release(row->answer);
    row->answer = NULL;
    run_row_done(row);
}

static size_t row_bytes(const struct run_row *row)
{
    return row->answer ? row->answer->len : 0;
}

/* Records a failure. Call without the list lock. */
static void note_failure(struct run_store *s)
{
    (void)pthread_mutex_lock(&s->list_lock);
    s->failures++;
    (void)snprintf(s->why, sizeof(s->why), "%s", sqlite3_errmsg(s->db));
    (void)pthread_mutex_unlock(&s->list_lock);
}

static int put_row(struct run_store *s, const struct run_row *row)
{
    sqlite3_stmt *sql = s->sql[SQL_PUT];
    (void)sqlite3_bind_text(sql, 1, row->id, -1, SQLITE_STATIC);
    (void)sqlite3_bind_text(sql, 2, row->owner, -1, SQLITE_STATIC);
    (void)sqlite3_bind_text(sql, 3, row->status, -1, SQLITE_STATIC);
    (void)sqlite3_bind_int64(sql, 4, row->created_ms);
    (void)sqlite3_bind_int64(sql, 5, row->finished_ms);
    if (row->answer)
        (void)sqlite3_bind_blob64(sql, 6, row->answer->text, row->answer->len, SQLITE_STATIC);
    else
        (void)sqlite3_bind_null(sql, 6);
    (void)sqlite3_bind_int64(sql, 7, (sqlite3_int64)row_bytes(row));
    int r = sqlite3_step(sql);
    (void)sqlite3_reset(sql);
    (void)sqlite3_clear_bindings(sql);
    return r == SQLITE_DONE ? SQLITE_OK : r;
}

/* Commits what went well so far, or takes it back. The database's lock is held. */
static void end_transaction(struct run_store *s, int *r)
{
    if (*r == SQLITE_OK)
        *r = sqlite3_exec(s->db, "COMMIT", NULL, NULL, NULL);
    if (*r != SQLITE_OK) {
        note_failure(s);
        (void)sqlite3_exec(s->db, "ROLLBACK", NULL, NULL, NULL);
    }
}

static int write_batch(struct run_store *s, const struct pending *batch)
{
    (void)pthread_mutex_lock(&s->db_lock);
    int r = sqlite3_exec(s->db, "BEGIN", NULL, NULL, NULL);
    for (const struct pending *p = batch; r == SQLITE_OK && p; p = p->next)
        r = p->is_removed ? SQLITE_OK : put_row(s, &p->row);
    end_transaction(s, &r);
    (void)pthread_mutex_unlock(&s->db_lock);
    return r;
}

static void free_list(struct pending *p)
{
    while (p) {
        struct pending *next = p->next;
        run_row_done(&p->row);
        free(p);
        p = next;
    }
}

/* Failures that may pass: no space, no memory, a slow disk. */
static bool may_pass(int r)
{
    return r == SQLITE_FULL || r == SQLITE_IOERR || r == SQLITE_BUSY || r == SQLITE_NOMEM ||
           r == SQLITE_CANTOPEN;
}

/* Ends a batch: frees it, or puts it back before all other rows for the next attempt. Call with
 * the list lock held. */
static void end_batch(struct run_store *s, struct pending *batch, int r)
{
    struct pending *last = batch;
    s->writing = NULL;
    if (may_pass(r) && !s->closing) {
        while (last->next)
            last = last->next;
        last->next = s->first;
        s->first = batch;
        s->last = s->last ? s->last : last;
        return;
    }
    for (const struct pending *p = batch; p; p = p->next) {
        s->pending_count--;
        s->pending_bytes -= row_bytes(&p->row);
    }
    free_list(batch);
}

/* Waits. Closing the store ends the wait; so does is_hasty, if may_hurry. Call with the list
 * lock held. */
static void wait_a_while(struct run_store *s, uint64_t ms, bool may_hurry)
{
    struct timespec until;
    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    uint64_t ns = (uint64_t)until.tv_nsec + ms * 1000000u;
    until.tv_sec += (time_t)(ns / 1000000000u);
    until.tv_nsec = (long)(ns % 1000000000u);
    while (!s->closing && !(may_hurry && s->is_hasty) &&
           pthread_cond_timedwait(&s->changed, &s->list_lock, &until) != ETIMEDOUT)
        ;
}

/* What an owner has in the database. */
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

/* The most that one owner may have, so that all together have at most max_bytes. Whoever has
 * less leaves the rest of its part to the others. */
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

/* Removes the oldest rows of an owner that have so many bytes, and adds up what they had. */
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

/* Brings the owners down to the level, the largest first. It ends where all together have
 * little enough: a large row may have made more room than its owner's part. */
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
static void expire(struct run_store *s, const struct expiry *expiry)
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
    end_transaction(s, &r);
    if (r == SQLITE_OK && sqlite3_total_changes(s->db) != before)
        (void)sqlite3_exec(s->db, "PRAGMA incremental_vacuum", NULL, NULL, NULL);
    (void)pthread_mutex_unlock(&s->db_lock);
    shares_done(&shares);
}

/* List lock held. */
static void write_first(struct run_store *s)
{
    wait_a_while(s, GATHER_MS, true);
    s->writing = s->first;
    s->first = s->last = NULL;
    s->is_hasty = false;
    (void)pthread_mutex_unlock(&s->list_lock);
    int r = write_batch(s, s->writing);
    (void)pthread_mutex_lock(&s->list_lock);
    end_batch(s, s->writing, r);
    if (may_pass(r))
        wait_a_while(s, RETRY_MS, false);
}

/* List lock held. */
static void expire_due(struct run_store *s)
{
    struct expiry expiry = s->expiry;
    s->expiry.is_due = false;
    (void)pthread_mutex_unlock(&s->list_lock);
    expire(s, &expiry);
    (void)pthread_mutex_lock(&s->list_lock);
}

static void *write_all(void *arg)
{
    struct run_store *s = arg;
    (void)pthread_mutex_lock(&s->list_lock);
    for (;;) {
        while (!s->first && !s->expiry.is_due && !s->closing)
            (void)pthread_cond_wait(&s->changed, &s->list_lock);
        if (!s->first && !s->expiry.is_due)
            break;
        if (s->first)
            write_first(s);
        if (s->expiry.is_due)
            expire_due(s);
    }
    (void)pthread_mutex_unlock(&s->list_lock);
    return NULL;
}

static int prepare_all(struct run_store *s)
{
    int r = sqlite3_exec(s->db, schema, NULL, NULL, NULL);
    for (size_t i = 0; r == SQLITE_OK && i < SQL_COUNT; i++)
        r = sqlite3_prepare_v3(
            s->db, statements[i], -1, SQLITE_PREPARE_PERSISTENT, &s->sql[i], NULL);
    if (r == SQLITE_OK) {
        (void)sqlite3_bind_int64(s->sql[SQL_LOST], 1, clock_wall_ms());
        r = sqlite3_step(s->sql[SQL_LOST]);
        (void)sqlite3_reset(s->sql[SQL_LOST]);
        r = r == SQLITE_DONE ? SQLITE_OK : r;
    }
    return r;
}

static void close_db(struct run_store *s)
{
    for (size_t i = 0; i < SQL_COUNT; i++) {
        (void)sqlite3_finalize(s->sql[i]);
        s->sql[i] = NULL;
    }
    (void)sqlite3_close(s->db);
    s->db = NULL;
}

static int open_db(struct run_store *s, const char *path)
{
    const int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX |
                      SQLITE_OPEN_PRIVATECACHE;
    int r = sqlite3_open_v2(path, &s->db, flags, NULL);
    if (r == SQLITE_OK) {
        (void)sqlite3_busy_timeout(s->db, 5000);
        r = prepare_all(s);
    }
    return r;
}

/* Moves the file and its companions out of the way. */
static void move_aside(const char *path)
{
    static const char *const suffixes[] = {"", "-wal", "-shm"};
    for (size_t i = 0; i < sizeof(suffixes) / sizeof(suffixes[0]); i++) {
        cleanup_free char *from = xasprintf("%s%s", path, suffixes[i]);
        cleanup_free char *to = xasprintf("%s.bad%s", path, suffixes[i]);
        (void)rename(from, to);
    }
}

int run_store_open(struct run_store **ret, const char *path, struct err *err)
{
    struct run_store *s = xcalloc(1, sizeof(*s));
    int r = open_db(s, path);
    if (r == SQLITE_NOTADB || r == SQLITE_CORRUPT) {
        close_db(s);
        move_aside(path);
        r = open_db(s, path);
    }
    (void)pthread_mutex_init(&s->db_lock, NULL);
    (void)pthread_mutex_init(&s->list_lock, NULL);
    pthread_condattr_t attr;
    (void)pthread_condattr_init(&attr);
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&s->changed, &attr);
    (void)pthread_condattr_destroy(&attr);
    if (r == SQLITE_OK) {
        s->has_writer = pthread_create(&s->writer, NULL, write_all, s) == 0;
        if (s->has_writer) {
            *ret = s;
            return 0;
        }
    }
    int code = err_set(err, r == SQLITE_FULL ? ERR_NO_SPACE : ERR_UNAVAILABLE, EIO,
        "cannot open the run history %s: %s", path, s->db ? sqlite3_errmsg(s->db) : "?");
    run_store_close(s);
    return code;
}

void run_store_close(struct run_store *store)
{
    if (!store)
        return;
    (void)pthread_mutex_lock(&store->list_lock);
    store->closing = true;
    (void)pthread_cond_signal(&store->changed);
    (void)pthread_mutex_unlock(&store->list_lock);
    if (store->has_writer)
        (void)pthread_join(store->writer, NULL);
    close_db(store);
    (void)pthread_mutex_destroy(&store->db_lock);
    (void)pthread_mutex_destroy(&store->list_lock);
    (void)pthread_cond_destroy(&store->changed);
    free(store);
}

int run_store_put(struct run_store *store, const struct run_row *row, struct err *err)
{
    (void)pthread_mutex_lock(&store->db_lock);
    int r = put_row(store, row);
    if (r != SQLITE_OK) {
        note_failure(store);
        r = err_set(err, r == SQLITE_FULL ? ERR_NO_SPACE : ERR_UNAVAILABLE,
            r == SQLITE_FULL ? ENOSPC : EIO, "cannot write the run history: %s",
            sqlite3_errmsg(store->db));
    }
    (void)pthread_mutex_unlock(&store->db_lock);
    return r;
}

void run_store_put_later(
    struct run_store *store, struct run_row *row, enum run_store_haste haste)
{
    struct pending *p = xcalloc(1, sizeof(*p));
    (void)pthread_mutex_lock(&store->list_lock);
    bool is_full = store->pending_count >= PENDING_MAX ||
                   store->pending_bytes + row_bytes(row) > PENDING_BYTES;
    bool has_news = !is_full && !store->first;
    p->row = *row;
    *row = (struct run_row){0};
    if (!is_full) {
        if (store->last)
            store->last->next = p;
        else
            store->first = p;
        store->last = p;
        store->pending_count++;
        store->pending_bytes += row_bytes(&p->row);
        bool is_enough =
            store->pending_count >= GATHER_MAX || store->pending_bytes >= PENDING_BYTES / 2;
        if (!store->is_hasty && (haste == STORE_PROMISED || is_enough))
            has_news = store->is_hasty = true;
    }
    (void)pthread_mutex_unlock(&store->list_lock);
    if (has_news) /* signalled without the lock, so that the writer need not wait for it */
        (void)pthread_cond_signal(&store->changed);
    if (is_full) { /* the disk is slower than the runs, so this caller waits for it */
        (void)run_store_put(store, &p->row, NULL);
        free_list(p);
    }
}

/* Looks through rows that are not written yet; the list lock is held. */
static int find_pending(
    const struct pending *p, const char *id, const char *name, struct run_row *ret)
{
    for (; p; p = p->next) {
        if (p->is_removed || strcmp(p->row.id, id) != 0)
            continue;
        if (name && strcmp(p->row.owner, name) != 0)
            return -ENOENT;
        if (p->row.answer && !answer_use(p->row.answer))
            return -ENOMEM;
        *ret = (struct run_row){.id = xstrdup(id),
            .owner = xstrdup(p->row.owner),
            .status = xstrdup(p->row.status),
            .created_ms = p->row.created_ms,
            .finished_ms = p->row.finished_ms,
            .answer = p->row.answer};
        return 0;
    }
    return -ENOENT;
}

/* Reads the answer of a row as a blob, straight into its own memory: reading it as a column
 * would make SQLite copy it first. Call with the database lock held. */
static int read_answer(struct run_store *s, sqlite3_int64 rowid, struct ledger *ledger,
    int owner, struct answer **ret)
{
    sqlite3_blob *blob = NULL;
    int r = sqlite3_blob_open(s->db, "main", "runs", "answer", rowid, 0, &blob);
    struct answer *a =
        r == SQLITE_OK ? answer_new(ledger, owner, (size_t)sqlite3_blob_bytes(blob)) : NULL;
    if (a)
        r = sqlite3_blob_read(blob, a->text, (int)a->len, 0);
    (void)sqlite3_blob_close(blob);
    if (a && r == SQLITE_OK) {
        *ret = a;
        return 0;
    }
    answer_release(a);
    return r == SQLITE_OK ? -ENOMEM : -ENOENT;
}

/* Searches the database. Call with the database lock held. */
static int find_written(
    struct run_store *s, const char *id, const struct run_asker *asker, struct run_row *ret)
{
    sqlite3_stmt *sql = s->sql[SQL_GET];
    struct answer *answer = NULL;
    (void)sqlite3_bind_text(sql, 1, id, -1, SQLITE_STATIC);
    (void)sqlite3_bind_text(sql, 2, asker->name, -1, SQLITE_STATIC); /* NULL is fine */
    int r = sqlite3_step(sql) == SQLITE_ROW ? 0 : -ENOENT;
    if (r == 0 && sqlite3_column_type(sql, 4) != SQLITE_NULL)
        r = read_answer(s, sqlite3_column_int64(sql, 5), asker->ledger, asker->index, &answer);
    if (r == 0)
        *ret = (struct run_row){.id = xstrdup(id),
            .owner = xstrdup((const char *)sqlite3_column_text(sql, 0)),
            .status = xstrdup((const char *)sqlite3_column_text(sql, 1)),
            .created_ms = sqlite3_column_int64(sql, 2),
            .finished_ms = sqlite3_column_int64(sql, 3),
            .answer = answer};
    (void)sqlite3_reset(sql);
    (void)sqlite3_clear_bindings(sql);
    return r;
}

int run_store_get_own(
    struct run_store *store, const char *id, const struct run_asker *asker, struct run_row *ret)
{
    (void)pthread_mutex_lock(&store->list_lock);
    int r = find_pending(store->first, id, asker->name, ret);
    if (r == -ENOENT)
        r = find_pending(store->writing, id, asker->name, ret);
    (void)pthread_mutex_unlock(&store->list_lock);
    if (r != -ENOENT)
        return r;
    (void)pthread_mutex_lock(&store->db_lock);
    r = find_written(store, id, asker, ret);
    (void)pthread_mutex_unlock(&store->db_lock);
    return r;
}

int run_store_get(struct run_store *store, const char *id, struct ledger *ledger, int owner,
    struct run_row *ret)
{
    const struct run_asker anybody = {.ledger = ledger, .index = owner};
    return run_store_get_own(store, id, &anybody, ret);
}

static void remove_pending(struct pending *p, const char *id)
{
    for (; p; p = p->next)
        p->is_removed = p->is_removed || strcmp(p->row.id, id) == 0;
}

/* Holds the database lock, so that no pending row is written meanwhile: the row is either in a
 * list or in the database. */
void run_store_remove(struct run_store *store, const char *id)
{
    (void)pthread_mutex_lock(&store->db_lock);
    (void)pthread_mutex_lock(&store->list_lock);
    remove_pending(store->first, id);
    remove_pending(store->writing, id);
    (void)pthread_mutex_unlock(&store->list_lock);
    (void)sqlite3_bind_text(store->sql[SQL_REMOVE], 1, id, -1, SQLITE_STATIC);
    (void)sqlite3_step(store->sql[SQL_REMOVE]);
    (void)sqlite3_reset(store->sql[SQL_REMOVE]);
    (void)pthread_mutex_unlock(&store->db_lock);
}

void run_store_expire(struct run_store *store, int64_t before_ms, uint64_t max_bytes)
{
    (void)pthread_mutex_lock(&store->list_lock);
    store->expiry =
        (struct expiry){.is_due = true, .before_ms = before_ms, .max_bytes = max_bytes};
    (void)pthread_mutex_unlock(&store->list_lock);
    (void)pthread_cond_signal(&store->changed);
}

uint64_t run_store_failures(struct run_store *store, char *why, size_t why_size)
{
    (void)pthread_mutex_lock(&store->list_lock);
    uint64_t failures = store->failures;
    (void)snprintf(why, why_size, "%s", store->why);
    (void)pthread_mutex_unlock(&store->list_lock);
    return failures;
}
