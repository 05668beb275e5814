/* SPDX-License-Identifier: Apache-2.0 */

/* See run_store.h. All SQL of the run history is here. A commit costs a write to disk, so
 * finished runs wait in a list until the writer thread puts all of them into one transaction. A
 * run that a client will ask for later (async) is written before it is promised. Writing each
 * run by itself would cost a server with one busy client 3 % of its time. */

#include "store/internal.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"

#include <errno.h>
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

/* What each version of the file adds to the one before; `user_version` of a file says how many
 * of these it has. A new file gets all of them, too. The index holds all that a list shows, so
 * that a list reads no answers, however many rows its filter skips. */
static const char *const migrations[] = {
    "ALTER TABLE runs ADD COLUMN language TEXT NOT NULL DEFAULT '';"
    "ALTER TABLE runs ADD COLUMN exit_code INTEGER;"
    "ALTER TABLE runs ADD COLUMN wall_ms INTEGER;"
    "CREATE INDEX runs_listed ON runs (owner, created_ms, id, status, language, finished_ms,"
    " exit_code, wall_ms);",
    "ALTER TABLE runs ADD COLUMN request BLOB;",
};

/* The rows of sessions (session/remembered.c) are not runs. The plus signs keep SQLite from an
 * index that has not all columns. */
#define LIST(whose)                                                                            \
    "SELECT id, owner, status, language, created_ms, finished_ms, exit_code, wall_ms"          \
    " FROM runs WHERE " whose " AND (created_ms, id) < (?2, ?3) AND +finished_ms >= ?4"        \
    " AND +finished_ms > 0 AND status=ifnull(?5, status) AND language=ifnull(?6, language)"    \
    " AND id NOT GLOB 'ses_*' ORDER BY created_ms DESC, id DESC LIMIT ?7"

static const char *const statements[SQL_COUNT] = {
    [SQL_PUT] = "INSERT INTO runs (id, owner, status, created_ms, finished_ms, answer, size,"
                " language, exit_code, wall_ms, request)"
                " VALUES (?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11)"
                " ON CONFLICT (id) DO UPDATE SET status=?3, finished_ms=?5, answer=?6, size=?7,"
                " exit_code=?9, wall_ms=?10",
    [SQL_GET] = "SELECT owner, status, created_ms, finished_ms, length(answer), rowid,"
                " ifnull(wall_ms, 0) FROM runs WHERE id=?1 AND owner=ifnull(?2, owner)",
    [SQL_GET_REQUEST] = "SELECT length(request), rowid"
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
    [SQL_LIST_OWN] = LIST("owner=?1"), /* reads the index in its order */
    [SQL_LIST_ALL] = LIST("?1 IS NULL"),
};

void run_row_done(struct run_row *row)
{
    free(row->id);
    free(row->owner);
    free(row->status);
    free(row->language);
    answer_drop(row->answer);
    answer_drop(row->request);
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
    return (row->answer ? row->answer->len : 0) + (row->request ? row->request->len : 0);
}

/* Records a failure. Call without the list lock. */
static void note_failure(struct run_store *s)
{
    (void)pthread_mutex_lock(&s->list_lock);
    s->failures++;
    (void)snprintf(s->why, sizeof(s->why), "%s", sqlite3_errmsg(s->db));
    (void)pthread_mutex_unlock(&s->list_lock);
}

/* A column without a value is NULL. */
static void bind_text_of(sqlite3_stmt *sql, int column, const struct answer *answer)
{
    if (answer)
        (void)sqlite3_bind_blob64(sql, column, answer->text, answer->len, SQLITE_STATIC);
}

static int put_row(struct run_store *s, const struct run_row *row)
{
    sqlite3_stmt *sql = s->sql[SQL_PUT];
    (void)sqlite3_bind_text(sql, 1, row->id, -1, SQLITE_STATIC);
    (void)sqlite3_bind_text(sql, 2, row->owner, -1, SQLITE_STATIC);
    (void)sqlite3_bind_text(sql, 3, row->status, -1, SQLITE_STATIC);
    (void)sqlite3_bind_int64(sql, 4, row->created_ms);
    (void)sqlite3_bind_int64(sql, 5, row->finished_ms);
    bind_text_of(sql, 6, row->answer);
    bind_text_of(sql, 11, row->request);
    (void)sqlite3_bind_int64(sql, 7, (sqlite3_int64)row_bytes(row));
    (void)sqlite3_bind_text(sql, 8, row->language ? row->language : "", -1, SQLITE_STATIC);
    if (row->exited)
        (void)sqlite3_bind_int(sql, 9, row->exit_code);
    if (row->wall_ms >= 0)
        (void)sqlite3_bind_int64(sql, 10, row->wall_ms);
    int r = sqlite3_step(sql);
    (void)sqlite3_reset(sql);
    (void)sqlite3_clear_bindings(sql);
    return r == SQLITE_DONE ? SQLITE_OK : r;
}

void store_end_transaction(struct run_store *s, int *r)
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
    store_end_transaction(s, &r);
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
    store_expire(s, &expiry);
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

static int read_version(struct run_store *s, size_t *ret)
{
    sqlite3_stmt *sql = NULL;
    int r = sqlite3_prepare_v2(s->db, "PRAGMA user_version", -1, &sql, NULL);
    if (r == SQLITE_OK && (r = sqlite3_step(sql)) == SQLITE_ROW) {
        *ret = (size_t)sqlite3_column_int(sql, 0);
        r = SQLITE_OK;
    }
    (void)sqlite3_finalize(sql);
    return r;
}

/* Each step is one transaction. SQLite undoes an unfinished step when the database is
 * closed. */
static int migrate(struct run_store *s)
{
    size_t version = 0;
    int r = read_version(s, &version);
    for (; r == SQLITE_OK && version < sizeof(migrations) / sizeof(migrations[0]); version++) {
        cleanup_free char *step = xasprintf(
            "BEGIN; %s PRAGMA user_version=%zu; COMMIT", migrations[version], version + 1);
        r = sqlite3_exec(s->db, step, NULL, NULL, NULL);
    }
    return r;
}

static int prepare_all(struct run_store *s)
{
    int r = sqlite3_exec(s->db, schema, NULL, NULL, NULL);
    if (r == SQLITE_OK)
        r = migrate(s);
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
