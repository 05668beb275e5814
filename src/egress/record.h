/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The record of what a box tried: one row per (host, port, protocol, reason), NETWORK_MAX_ROWS
 * of them; attempts that find no row are only counted. */

#include "proto/network.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct record {
    struct network_row *rows; /* owned */
    size_t count;
    uint32_t generation; /* how often a new record was begun */
    bool is_limit_hit;
    uint64_t sent;
    uint64_t received;
    uint64_t more;
};

/* The row of one connection, which may live longer than the record. `key` says what the row is
 * about; its counts do not count. */
struct record_ref {
    struct network_row key;
    uint32_t generation;
    size_t row; /* RECORD_NO_ROW: there was no room */
};
#define RECORD_NO_ROW SIZE_MAX

void record_done(struct record *r);

/* Begins a new record. */
void record_clear(struct record *r);

/* Counts an attempt. Returns true when it got a row of its own: the first of its kind. */
bool record_try(struct record *r, struct record_ref *ref);

/* Counts bytes of a connection. One that began in an earlier record gets a row here, with a
 * count of 0. */
void record_move(struct record *r, struct record_ref *ref, uint64_t sent, uint64_t received);
