/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Counts what strangers make a server hold, before it is held, and refuses what is past the
 * bound. Each owner (a key; -1 for callers without one) may hold at most as much as it leaves
 * free: half of the bound when it is alone, a third beside another one that does the same, and
 * so on. There is always room for the next owner, whatever the others do. Any thread may call
 * any function. */

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>

struct ledger;

struct ledger *ledger_new(size_t max, size_t owners); /* owners are -1 to owners - 1 */
void ledger_free(struct ledger *ledger);
size_t ledger_sum(struct ledger *ledger);

/* The largest sum since the last call. */
size_t ledger_peak(struct ledger *ledger);

/* Refuses everything until it is told otherwise: the machine has less than was counted on. */
void ledger_shut(struct ledger *ledger, bool is_shut);

/* What one request, run or exec holds. Must not move while buffers use it. A zeroed one counts
 * nothing and refuses nothing. */
struct purse {
    struct buf_purse counts; /* for struct buf */
    struct ledger *ledger;
    int owner;
    size_t bytes; /* with the ledger's lock */
};

void purse_open(struct purse *purse, struct ledger *ledger, int owner);
bool purse_take(struct purse *purse, size_t bytes);
void purse_give(struct purse *purse, size_t bytes);

/* What it holds is this owner's from now on, also when that is more than the owner may have. */
void purse_hand_to(struct purse *purse, int owner);

/* Gives back all that it still holds. */
void purse_close(struct purse *purse);
