/* SPDX-License-Identifier: Apache-2.0 */

/* See approval_store.h. All SQL of approvals is here. They are rare beside runs, so each call
 * prepares its statement and waits for the disk. */

#include "store/approval_store.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"

#include <errno.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct approval_store {
    sqlite3 *db;
    int64_t last_seq;
    char last_hash[LOG_HASH];
};

static const char schema[] =
    "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA temp_store=MEMORY;"
    "PRAGMA secure_delete=ON;"
    "CREATE TABLE IF NOT EXISTS approvals (id TEXT PRIMARY KEY, owner TEXT NOT NULL,"
    " state TEXT NOT NULL, effect TEXT NOT NULL, digest TEXT NOT NULL, reason TEXT NOT NULL,"
    " reviewer TEXT NOT NULL, run TEXT NOT NULL, session TEXT NOT NULL, execution TEXT NOT"
    " NULL, scope TEXT NOT NULL, decided_by TEXT NOT NULL, via TEXT NOT NULL, comment TEXT NOT"
    " NULL, created_ms INTEGER NOT NULL, expires_ms INTEGER NOT NULL, decided_ms INTEGER NOT"
    " NULL, changed INTEGER NOT NULL, require_human INTEGER NOT NULL) STRICT;"
    "CREATE INDEX IF NOT EXISTS approvals_changed ON approvals (changed);"
    "CREATE INDEX IF NOT EXISTS approvals_state ON approvals (state, changed);"
    "CREATE TABLE IF NOT EXISTS grants (id INTEGER PRIMARY KEY AUTOINCREMENT, owner TEXT NOT"
    " NULL, session TEXT NOT NULL, effect TEXT NOT NULL, digest TEXT NOT NULL, decided_by TEXT"
    " NOT NULL, via TEXT NOT NULL, created_ms INTEGER NOT NULL,"
    " UNIQUE (owner, session, digest, via)) STRICT;"
    "CREATE TABLE IF NOT EXISTS rules (one INTEGER PRIMARY KEY CHECK (one = 1),"
    " text TEXT NOT NULL) STRICT;"
    "CREATE TABLE IF NOT EXISTS log (seq INTEGER PRIMARY KEY, time_ms INTEGER NOT NULL,"
    " owner TEXT NOT NULL, place TEXT NOT NULL, approval TEXT NOT NULL, event TEXT NOT NULL,"
    " data TEXT NOT NULL, prev_hash TEXT NOT NULL, hash TEXT NOT NULL) STRICT;"
    "CREATE INDEX IF NOT EXISTS log_place ON log (place, seq) WHERE place <> '';"
    "CREATE TRIGGER IF NOT EXISTS log_stays BEFORE UPDATE ON log"
    " BEGIN SELECT RAISE(ABORT, 'the log is append-only'); END;"
    "CREATE TRIGGER IF NOT EXISTS log_is_kept BEFORE DELETE ON log"
    " BEGIN SELECT RAISE(ABORT, 'the log is append-only'); END;"
    "DELETE FROM grants WHERE session <> '';";

#define COLUMNS                                                                                \
    "id, owner, state, effect, digest, reason, reviewer, run, session, execution, scope,"      \
    " decided_by, via, comment, created_ms, expires_ms, decided_ms, changed, require_human"

/* --- statements */

static void finalize(sqlite3_stmt **sql)
{
    (void)sqlite3_finalize(*sql);
}

/* Prepares a statement and binds its arguments: one letter each, s for text that may be NULL, i
 * for int64_t. NULL when it fails. */
static sqlite3_stmt *prepare(
    struct approval_store *s, const char *text, const char *letters, va_list args)
{
    sqlite3_stmt *sql = NULL;
    if (sqlite3_prepare_v2(s->db, text, -1, &sql, NULL) != SQLITE_OK)
        return NULL;
    for (int i = 1; letters[i - 1]; i++) {
        const char *word = letters[i - 1] == 's' ? va_arg(args, const char *) : NULL;
        if (letters[i - 1] == 'i')
            (void)sqlite3_bind_int64(sql, i, va_arg(args, int64_t));
        else if (word)
            (void)sqlite3_bind_text(sql, i, word, -1, SQLITE_TRANSIENT);
    }
    return sql;
}

static sqlite3_stmt *query(struct approval_store *s, const char *text, const char *letters, ...)
{
    va_list args;
    va_start(args, letters);
    sqlite3_stmt *sql = prepare(s, text, letters, args);
    va_end(args);
    return sql;
}

/* Runs a statement that has no rows. Returns SQLITE_OK or an error. */
static int change(struct approval_store *s, const char *text, const char *letters, ...)
{
    va_list args;
    va_start(args, letters);
    CLEANUP(finalize) sqlite3_stmt *sql = prepare(s, text, letters, args);
    va_end(args);
    int r = sql ? sqlite3_step(sql) : sqlite3_errcode(s->db);
    return r == SQLITE_DONE ? SQLITE_OK : r;
}

static const char *column(sqlite3_stmt *sql, int i)
{
    const char *text = (const char *)sqlite3_column_text(sql, i);
    return text ? text : "";
}

/* Ends a transaction that went well so far, or takes it back. */
static int finish(struct approval_store *s, int r, struct err *err)
{
    if (r == SQLITE_OK)
        r = sqlite3_exec(s->db, "COMMIT", NULL, NULL, NULL);
    if (r == SQLITE_OK)
        return 0;
    int errnum = r == SQLITE_FULL ? ENOSPC : EIO;
    (void)err_set(err, r == SQLITE_FULL ? ERR_NO_SPACE : ERR_UNAVAILABLE, errnum,
        "the approval cannot be kept: %s", sqlite3_errmsg(s->db));
    (void)sqlite3_exec(s->db, "ROLLBACK", NULL, NULL, NULL);
    return -errnum;
}

static int begin(struct approval_store *s)
{
    return sqlite3_exec(s->db, "BEGIN IMMEDIATE", NULL, NULL, NULL);
}

/* --- the log */

/* Inside a transaction. */
static int append(struct approval_store *s, struct log_row *log)
{
    log->seq = s->last_seq + 1;
    log->time_ms = clock_wall_ms();
    memcpy(log->prev_hash, s->last_hash, sizeof(log->prev_hash));
    log_row_hash(log, log->hash);
    return change(s, "INSERT INTO log VALUES (?1,?2,?3,?4,?5,?6,?7,?8,?9)", "iisssssss",
        log->seq, log->time_ms, log->owner, log->place, log->approval, log->event, log->data,
        log->prev_hash, log->hash);
}

/* The transaction is on the disk: the next row follows this one. */
static int keep(struct approval_store *s, const struct log_row *log, int r)
{
    if (r == 0) {
        s->last_seq = log->seq;
        memcpy(s->last_hash, log->hash, sizeof(s->last_hash));
    }
    return r;
}

int approval_store_log(struct approval_store *s, struct log_row *log, struct err *err)
{
    int r = begin(s);
    if (r == SQLITE_OK)
        r = append(s, log);
    return keep(s, log, finish(s, r, err));
}

int64_t approval_store_last(struct approval_store *s)
{
    return s->last_seq;
}

/* --- opening */

static int read_last(struct approval_store *s)
{
    CLEANUP(finalize)
    sqlite3_stmt *sql = query(s, "SELECT seq, hash FROM log ORDER BY seq DESC LIMIT 1", "");
    memcpy(s->last_hash, LOG_FIRST, sizeof(s->last_hash));
    if (!sql)
        return -EIO;
    if (sqlite3_step(sql) == SQLITE_ROW) {
        s->last_seq = sqlite3_column_int64(sql, 0);
        (void)snprintf(s->last_hash, sizeof(s->last_hash), "%s", column(sql, 1));
    }
    return 0;
}

int approval_store_open(struct approval_store **ret, const char *path, struct err *err)
{
    struct approval_store *s = xcalloc(1, sizeof(*s));
    int r = sqlite3_open_v2(path ? path : ":memory:", &s->db,
        SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, NULL);
    if (r == SQLITE_OK)
        r = sqlite3_exec(s->db, schema, NULL, NULL, NULL);
    if (r != SQLITE_OK || read_last(s) < 0) {
        (void)err_set(err, ERR_INTERNAL, EIO,
            "%s cannot be used: %s; if it is damaged, move it away: its log is evidence",
            path ? path : "the store of approvals", sqlite3_errmsg(s->db));
        approval_store_close(s);
        return -EIO;
    }
    *ret = s;
    return 0;
}

void approval_store_close(struct approval_store *s)
{
    if (!s)
        return;
    (void)sqlite3_close(s->db);
    free(s);
}

/* --- approvals */

void approval_row_done(struct approval_row *row)
{
    char *texts[] = {row->id, row->owner, row->state, row->effect, row->digest, row->reason,
        row->reviewer, row->run, row->session, row->execution, row->scope, row->decided_by,
        row->via, row->comment};
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        free(texts[i]);
    *row = (struct approval_row){0};
}

int approval_store_insert(struct approval_store *s, const struct approval_row *row,
    struct log_row *log, struct err *err)
{
    int r = begin(s);
    if (r == SQLITE_OK)
        r = append(s, log);
    if (r == SQLITE_OK)
        r = change(s,
            "INSERT INTO approvals (" COLUMNS ") VALUES (?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,'','',"
            "'','',?11,?12,0,?13,?14)",
            "ssssssssssiiii", row->id, row->owner, row->state, row->effect, row->digest,
            row->reason, row->reviewer, row->run, row->session, row->execution, row->created_ms,
            row->expires_ms, log->seq, (int64_t)row->require_human);
    return keep(s, log, finish(s, r, err));
}

static int add_grant(struct approval_store *s, const struct grant_row *grant)
{
    return change(s,
        "INSERT OR IGNORE INTO grants (owner, session, effect, digest, decided_by, via,"
        " created_ms) VALUES (?1,?2,?3,?4,?5,?6,?7)",
        "ssssssi", grant->owner, grant->session, grant->effect, grant->digest,
        grant->decided_by, grant->via, grant->created_ms);
}

int approval_store_decide(struct approval_store *s, const struct approval_row *row,
    const struct grant_row *grant, struct log_row *log, struct err *err)
{
    int r = begin(s);
    if (r == SQLITE_OK)
        r = append(s, log);
    if (r == SQLITE_OK)
        r = change(s,
            "UPDATE approvals SET state=?2, scope=?3, decided_by=?4, via=?5, comment=?6,"
            " decided_ms=?7, changed=?8 WHERE id=?1 AND state='pending'",
            "ssssssii", row->id, row->state, row->scope, row->decided_by, row->via,
            row->comment, row->decided_ms, log->seq);
    if (r == SQLITE_OK && sqlite3_changes(s->db) == 0) {
        (void)sqlite3_exec(s->db, "ROLLBACK", NULL, NULL, NULL);
        return -EALREADY;
    }
    if (r == SQLITE_OK && grant)
        r = add_grant(s, grant);
    return keep(s, log, finish(s, r, err));
}

int approval_store_review(struct approval_store *s, const char *id, const char *reviewer,
    struct log_row *log, struct err *err)
{
    int r = begin(s);
    if (r == SQLITE_OK)
        r = append(s, log);
    if (r == SQLITE_OK)
        r = change(s, "UPDATE approvals SET reviewer=?2, changed=?3 WHERE id=?1", "ssi", id,
            reviewer, log->seq);
    return keep(s, log, finish(s, r, err));
}

/* The texts are the statement's: they are copied only for a caller who keeps them. */
static void read_row(sqlite3_stmt *sql, struct approval_row *ret)
{
    char **texts[] = {&ret->id, &ret->owner, &ret->state, &ret->effect, &ret->digest,
        &ret->reason, &ret->reviewer, &ret->run, &ret->session, &ret->execution, &ret->scope,
        &ret->decided_by, &ret->via, &ret->comment};
    const int count = sizeof(texts) / sizeof(texts[0]);
    *ret = (struct approval_row){0};
    for (int i = 0; i < count; i++)
        *texts[i] = xstrdup(column(sql, i));
    ret->created_ms = sqlite3_column_int64(sql, count);
    ret->expires_ms = sqlite3_column_int64(sql, count + 1);
    ret->decided_ms = sqlite3_column_int64(sql, count + 2);
    ret->changed = sqlite3_column_int64(sql, count + 3);
    ret->require_human = sqlite3_column_int(sql, count + 4) != 0;
}

int approval_store_get(struct approval_store *s, const char *id, struct approval_row *ret)
{
    CLEANUP(finalize)
    sqlite3_stmt *sql = query(s, "SELECT " COLUMNS " FROM approvals WHERE id=?1", "s", id);
    int r = sql ? sqlite3_step(sql) : SQLITE_ERROR;
    if (r == SQLITE_ROW)
        read_row(sql, ret);
    return r == SQLITE_ROW ? 0 : r == SQLITE_DONE ? -ENOENT : -EIO;
}

int approval_store_list(struct approval_store *s, const struct approval_query *q,
    approval_each *each, void *context)
{
    const char *newest = "SELECT " COLUMNS " FROM approvals WHERE owner=ifnull(?1, owner) AND"
                         " state=ifnull(?2, state) AND changed > ?3 ORDER BY created_ms DESC,"
                         " changed DESC LIMIT ?4";
    const char *changed = "SELECT " COLUMNS " FROM approvals WHERE owner=ifnull(?1, owner) AND"
                          " state=ifnull(?2, state) AND changed > ?3 ORDER BY changed LIMIT ?4";
    CLEANUP(finalize)
    sqlite3_stmt *sql = query(s, q->after < 0 ? newest : changed, "ssii", q->owner, q->state,
        q->after, (int64_t)q->limit);
    if (!sql)
        return -EIO;
    while (sqlite3_step(sql) == SQLITE_ROW) {
        CLEANUP(approval_row_done) struct approval_row row;
        read_row(sql, &row);
        each(context, &row);
    }
    return 0;
}

void approval_store_forget(struct approval_store *s, int64_t before_ms)
{
    (void)change(s, "DELETE FROM approvals WHERE state <> 'pending' AND decided_ms < ?1", "i",
        before_ms);
}

/* --- log, grants, rules */

int approval_store_log_list(
    struct approval_store *s, const struct log_query *q, log_each *each, void *context)
{
#define LOG_COLUMNS                                                                            \
    "SELECT seq, time_ms, owner, place, approval, event, data, prev_hash, hash FROM log"
    const char *placed = LOG_COLUMNS " WHERE owner=ifnull(?1, owner) AND place=?2 AND place <>"
                                     " '' AND seq > ?3 ORDER BY seq DESC LIMIT ?4";
    const char *all = LOG_COLUMNS " WHERE owner=ifnull(?1, owner) AND ?2 IS NULL AND seq > ?3"
                                  " ORDER BY seq LIMIT ?4";
    CLEANUP(finalize)
    sqlite3_stmt *sql = query(
        s, q->place ? placed : all, "ssii", q->owner, q->place, q->after, (int64_t)q->limit);
    if (!sql)
        return -EIO;
    while (sqlite3_step(sql) == SQLITE_ROW) {
        struct log_row row = {.seq = sqlite3_column_int64(sql, 0),
            .time_ms = sqlite3_column_int64(sql, 1),
            .owner = column(sql, 2),
            .place = column(sql, 3),
            .approval = column(sql, 4),
            .event = column(sql, 5),
            .data = column(sql, 6)};
        (void)snprintf(row.prev_hash, sizeof(row.prev_hash), "%s", column(sql, 7));
        (void)snprintf(row.hash, sizeof(row.hash), "%s", column(sql, 8));
        each(context, &row);
    }
    return 0;
}

int approval_store_grants(
    struct approval_store *s, const char *owner, grant_each *each, void *context)
{
    CLEANUP(finalize)
    sqlite3_stmt *sql = query(s,
        "SELECT id, owner, session, effect, digest, decided_by, via, created_ms FROM grants"
        " WHERE owner=ifnull(?1, owner) ORDER BY id",
        "s", owner);
    if (!sql)
        return -EIO;
    while (sqlite3_step(sql) == SQLITE_ROW) {
        const struct grant_row row = {.id = sqlite3_column_int64(sql, 0),
            .owner = column(sql, 1),
            .session = column(sql, 2),
            .effect = column(sql, 3),
            .digest = column(sql, 4),
            .decided_by = column(sql, 5),
            .via = column(sql, 6),
            .created_ms = sqlite3_column_int64(sql, 7)};
        each(context, &row);
    }
    return 0;
}

bool approval_store_find_grant(struct approval_store *s, const char *owner, const char *session,
    const char *digest, bool *ret_is_human)
{
    CLEANUP(finalize)
    sqlite3_stmt *sql = query(s,
        "SELECT max(via <> 'model') FROM grants WHERE owner=?1 AND session IN ('', ?2)"
        " AND digest=?3",
        "sss", owner, session, digest);
    bool is_found =
        sql && sqlite3_step(sql) == SQLITE_ROW && sqlite3_column_type(sql, 0) != SQLITE_NULL;
    if (is_found)
        *ret_is_human = sqlite3_column_int(sql, 0) != 0;
    return is_found;
}

int approval_store_revoke(
    struct approval_store *s, int64_t grant, struct log_row *log, struct err *err)
{
    int r = begin(s);
    if (r == SQLITE_OK)
        r = append(s, log);
    if (r == SQLITE_OK)
        r = change(s, "DELETE FROM grants WHERE id=?1", "i", grant);
    return keep(s, log, finish(s, r, err));
}

int approval_store_set_rules(
    struct approval_store *s, const char *text, struct log_row *log, struct err *err)
{
    int r = begin(s);
    if (r == SQLITE_OK)
        r = append(s, log);
    if (r == SQLITE_OK)
        r = change(s, "INSERT OR REPLACE INTO rules VALUES (1, ?1)", "s", text);
    return keep(s, log, finish(s, r, err));
}

char *approval_store_rules(struct approval_store *s)
{
    CLEANUP(finalize) sqlite3_stmt *sql = query(s, "SELECT text FROM rules", "");
    return sql && sqlite3_step(sql) == SQLITE_ROW ? xstrdup(column(sql, 0)) : NULL;
}
