/* SPDX-License-Identifier: Apache-2.0 */

/* Reads rows: written rows, and rows that wait for the writer. */

#include "store/internal.h"

#include "base/alloc.h"

#include <errno.h>
#include <string.h>

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
            .wall_ms = p->row.wall_ms,
            .created_ms = p->row.created_ms,
            .finished_ms = p->row.finished_ms,
            .answer = p->row.answer};
        return 0;
    }
    return -ENOENT;
}

/* Reads a column of a row as a blob, straight into its own memory: reading it as a column
 * would make SQLite copy it first. Call with the database lock held. */
static int read_blob(struct run_store *s, const char *column, sqlite3_int64 rowid,
    const struct run_asker *asker, struct answer **ret)
{
    sqlite3_blob *blob = NULL;
    int r = sqlite3_blob_open(s->db, "main", "runs", column, rowid, 0, &blob);
    struct answer *a = r == SQLITE_OK ? answer_new(asker->ledger, asker->index,
                                            (size_t)sqlite3_blob_bytes(blob), NULL)
                                      : NULL;
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
        r = read_blob(s, "answer", sqlite3_column_int64(sql, 5), asker, &answer);
    if (r == 0)
        *ret = (struct run_row){.id = xstrdup(id),
            .owner = xstrdup((const char *)sqlite3_column_text(sql, 0)),
            .status = xstrdup((const char *)sqlite3_column_text(sql, 1)),
            .created_ms = sqlite3_column_int64(sql, 2),
            .finished_ms = sqlite3_column_int64(sql, 3),
            .wall_ms = sqlite3_column_int64(sql, 6),
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

/* The list lock is held. */
static int find_pending_request(
    const struct pending *p, const char *id, const char *name, struct answer **ret)
{
    while (p && (p->is_removed || strcmp(p->row.id, id) != 0))
        p = p->next;
    if (!p || !p->row.request || (name && strcmp(p->row.owner, name) != 0))
        return -ENOENT;
    *ret = p->row.request;
    return answer_use(*ret) ? 0 : -ENOMEM;
}

/* Call with the database lock held. */
static int find_written_request(
    struct run_store *s, const char *id, const struct run_asker *asker, struct answer **ret)
{
    sqlite3_stmt *sql = s->sql[SQL_GET_REQUEST];
    (void)sqlite3_bind_text(sql, 1, id, -1, SQLITE_STATIC);
    (void)sqlite3_bind_text(sql, 2, asker->name, -1, SQLITE_STATIC);
    int r = sqlite3_step(sql) == SQLITE_ROW && sqlite3_column_type(sql, 0) != SQLITE_NULL
                ? read_blob(s, "request", sqlite3_column_int64(sql, 1), asker, ret)
                : -ENOENT;
    (void)sqlite3_reset(sql);
    (void)sqlite3_clear_bindings(sql);
    return r;
}

int run_store_get_request(
    struct run_store *store, const char *id, const struct run_asker *asker, struct answer **ret)
{
    (void)pthread_mutex_lock(&store->list_lock);
    int r = find_pending_request(store->first, id, asker->name, ret);
    if (r == -ENOENT)
        r = find_pending_request(store->writing, id, asker->name, ret);
    (void)pthread_mutex_unlock(&store->list_lock);
    if (r != -ENOENT)
        return r;
    (void)pthread_mutex_lock(&store->db_lock);
    r = find_written_request(store, id, asker, ret);
    (void)pthread_mutex_unlock(&store->db_lock);
    return r;
}

int run_store_get(struct run_store *store, const char *id, struct ledger *ledger, int owner,
    struct run_row *ret)
{
    const struct run_asker anybody = {.ledger = ledger, .index = owner};
    return run_store_get_own(store, id, &anybody, ret);
}
