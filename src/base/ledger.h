/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Counts the memory that strangers make a server hold, before the server holds it, and refuses
 * what exceeds the bound. An owner is a key, or -1 for callers without one. An owner may hold
 * at most as much as it leaves free: half of the bound when it is alone, a third beside one
 * other owner that does the same, and so on. So there is always room for the next owner. Any
 * thread may call any function. */

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>

struct ledger;

struct ledger *ledger_new(size_t max, size_t owners); /* owners are -1 to owners - 1 */
void ledger_free(struct ledger *ledger);
size_t ledger_sum(struct ledger *ledger);

/* The largest sum since the last call. */
size_t ledger_peak(struct ledger *ledger);

/* While shut, the ledger refuses everything: the machine has less memory than the bound
 * assumes. */
void ledger_shut(struct ledger *ledger, bool is_shut);

/* The memory that one request, run or exec holds. Must not move while buffers use it. A zeroed
 * purse counts nothing and refuses nothing. */
struct purse {
    struct buf_purse counts; /* lets a struct buf use this purse */
    struct ledger *ledger;
    int owner;
    size_t bytes; /* guarded by the ledger's lock */
};

void purse_open(struct purse *purse, struct ledger *ledger, int owner);
bool purse_take(struct purse *purse, size_t bytes);

/* If the ledger refuses the bytes, `held` gives back all that it holds in the same step. The
 * caller frees that memory then. When many callers hold memory and ask for more at one moment,
 * those that ask last get what the first ones gave back; otherwise the ledger would refuse all
 * of them. `held` may be the same purse, or NULL. */
bool purse_take_or_close(struct purse *purse, size_t bytes, struct purse *held);
void purse_give(struct purse *purse, size_t bytes);

/* Charges the bytes of the purse to this owner, even if that exceeds what the owner may
 * have. */
void purse_hand_to(struct purse *purse, int owner);

/* Gives back everything that the purse still holds. */
void purse_close(struct purse *purse);
