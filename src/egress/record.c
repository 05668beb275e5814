/* SPDX-License-Identifier: Apache-2.0 */

/* See record.h. */

#include "egress/record.h"

#include "base/alloc.h"

#include <stdlib.h>
#include <string.h>

void record_done(struct record *r)
{
    free(r->rows);
    *r = (struct record){0};
}

void record_clear(struct record *r)
{
    uint32_t next = r->generation + 1;
    record_done(r);
    r->generation = next;
}

static bool is_same(const struct network_row *a, const struct network_row *b)
{
    return a->is_allowed == b->is_allowed && a->protocol == b->protocol && a->port == b->port &&
           a->reason == b->reason && strcmp(a->host, b->host) == 0;
}

/* Finds or makes the row. Returns whether it was made. */
static bool find_row(struct record *r, struct record_ref *ref)
{
    ref->generation = r->generation;
    for (ref->row = 0; ref->row < r->count; ref->row++)
        if (is_same(&r->rows[ref->row], &ref->key))
            return false;
    if (r->count == NETWORK_MAX_ROWS) {
        ref->row = RECORD_NO_ROW;
        return false;
    }
    r->rows = xgrow(r->rows, r->count, sizeof(*r->rows));
    struct network_row *row = &r->rows[r->count++];
    *row = ref->key;
    row->count = row->sent = row->received = 0;
    return true;
}

bool record_try(struct record *r, struct record_ref *ref)
{
    bool is_new = find_row(r, ref);
    if (ref->row == RECORD_NO_ROW)
        r->more++;
    else
        r->rows[ref->row].count++;
    return is_new;
}

void record_move(struct record *r, struct record_ref *ref, uint64_t sent, uint64_t received)
{
    if (ref->generation != r->generation)
        (void)find_row(r, ref);
    r->sent += sent;
    r->received += received;
    if (ref->row != RECORD_NO_ROW) {
        r->rows[ref->row].sent += sent;
        r->rows[ref->row].received += received;
    }
}
