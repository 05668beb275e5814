/* SPDX-License-Identifier: Apache-2.0 */

/* Lists of runs. A list is made of rows from several places (memory, rows that wait for the
 * writer, the database), which are offered one by one. */

#include "store/internal.h"

#include "base/alloc.h"
#include "base/str.h"

#include <errno.h>
#include <string.h>

void run_list_done(struct run_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        run_row_done(&list->rows[i]);
    list->count = 0;
}

/* Negative when the first position is newer, 0 when both are the same row. */
static int compare(int64_t a_ms, const char *a_id, int64_t b_ms, const char *b_id)
{
    return a_ms != b_ms ? (a_ms > b_ms ? -1 : 1) : strcmp(b_id, a_id);
}

static bool is_asked_for(const struct run_query *q, const struct run_row *row)
{
    return (!q->owner || str_eq(q->owner, row->owner)) &&
           (!q->status || str_eq(q->status, row->status)) &&
           (!q->language || str_eq(q->language, row->language)) &&
           !str_has_prefix(row->id, "ses_") && /* a session (session/remembered.c) */
           (!row->finished_ms || row->finished_ms >= q->expired_ms) &&
           compare(row->created_ms, row->id, q->before_ms, q->before_id) > 0;
}

void run_list_offer(
    struct run_list *list, const struct run_query *query, const struct run_row *row)
{
    if (!is_asked_for(query, row))
        return;
    size_t at = list->count;
    int order = -1;
    while (at > 0 && (order = compare(row->created_ms, row->id, list->rows[at - 1].created_ms,
                          list->rows[at - 1].id)) < 0)
        at--;
    if (at == query->limit || (at > 0 && order == 0))
        return;
    if (list->count == query->limit)
        run_row_done(&list->rows[--list->count]);
    memmove(&list->rows[at + 1], &list->rows[at], (list->count - at) * sizeof(*row));
    list->rows[at] = *row;
    list->rows[at].id = xstrdup(row->id);
    list->rows[at].owner = xstrdup(row->owner);
    list->rows[at].status = xstrdup(row->status);
    list->rows[at].language = xstrdup(row->language ? row->language : "");
    list->rows[at].answer = list->rows[at].request = NULL;
    list->count++;
}

/* List lock held. */
static void offer_pending(
    const struct pending *p, const struct run_query *query, struct run_list *list)
{
    for (; p; p = p->next) {
        if (!p->is_removed && p->row.finished_ms)
            run_list_offer(list, query, &p->row);
    }
}

static char *text_of(sqlite3_stmt *sql, int column)
{
    return (char *)sqlite3_column_text(sql, column);
}

/* Database lock held. */
static int offer_written(
    struct run_store *s, const struct run_query *query, struct run_list *list)
{
    sqlite3_stmt *sql = s->sql[query->owner ? SQL_LIST_OWN : SQL_LIST_ALL];
    int r;
    (void)sqlite3_bind_text(sql, 1, query->owner, -1, SQLITE_STATIC); /* NULL is fine */
    (void)sqlite3_bind_int64(sql, 2, query->before_ms);
    (void)sqlite3_bind_text(sql, 3, query->before_id, -1, SQLITE_STATIC);
    (void)sqlite3_bind_int64(sql, 4, query->expired_ms);
    (void)sqlite3_bind_text(sql, 5, query->status, -1, SQLITE_STATIC);
    (void)sqlite3_bind_text(sql, 6, query->language, -1, SQLITE_STATIC);
    (void)sqlite3_bind_int64(sql, 7, (sqlite3_int64)query->limit);
    while ((r = sqlite3_step(sql)) == SQLITE_ROW) {
        const struct run_row row = {.id = text_of(sql, 0),
            .owner = text_of(sql, 1),
            .status = text_of(sql, 2),
            .language = text_of(sql, 3),
            .created_ms = sqlite3_column_int64(sql, 4),
            .finished_ms = sqlite3_column_int64(sql, 5),
            .exited = sqlite3_column_type(sql, 6) != SQLITE_NULL,
            .exit_code = sqlite3_column_int(sql, 6),
            .wall_ms =
                sqlite3_column_type(sql, 7) == SQLITE_NULL ? -1 : sqlite3_column_int64(sql, 7)};
        run_list_offer(list, query, &row);
    }
    (void)sqlite3_reset(sql);
    (void)sqlite3_clear_bindings(sql);
    return r == SQLITE_DONE ? SQLITE_OK : r;
}

int run_store_list(struct run_store *store, const struct run_query *query,
    struct run_list *list, struct err *err)
{
    (void)pthread_mutex_lock(&store->list_lock);
    offer_pending(store->first, query, list);
    offer_pending(store->writing, query, list);
    (void)pthread_mutex_unlock(&store->list_lock);
    (void)pthread_mutex_lock(&store->db_lock);
    int r = offer_written(store, query, list);
    (void)pthread_mutex_unlock(&store->db_lock);
    return r == SQLITE_OK
               ? 0
               : err_set(err, ERR_UNAVAILABLE, EIO, "cannot read the run history; try again");
}
