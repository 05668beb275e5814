/* SPDX-License-Identifier: Apache-2.0 */

/* See ledger.h. One lock is enough: a run takes it a handful of times, for nanoseconds. */

#include "base/ledger.h"

#include "base/alloc.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>

struct ledger {
    pthread_mutex_t lock;
    size_t max;
    size_t sum;
    size_t peak;
    bool is_shut;
    size_t owners;
    size_t held[]; /* indexed by owner + 1 */
};

struct ledger *ledger_new(size_t max, size_t owners)
{
    struct ledger *l = xcalloc(1, sizeof(*l) + (owners + 1) * sizeof(l->held[0]));
    l->max = max;
    l->owners = owners;
    (void)pthread_mutex_init(&l->lock, NULL);
    return l;
}

void ledger_free(struct ledger *ledger)
{
    if (!ledger)
        return;
    (void)pthread_mutex_destroy(&ledger->lock);
    free(ledger);
}

size_t ledger_sum(struct ledger *ledger)
{
    (void)pthread_mutex_lock(&ledger->lock);
    size_t sum = ledger->sum;
    (void)pthread_mutex_unlock(&ledger->lock);
    return sum;
}

size_t ledger_peak(struct ledger *ledger)
{
    (void)pthread_mutex_lock(&ledger->lock);
    size_t peak = ledger->peak;
    ledger->peak = ledger->sum;
    (void)pthread_mutex_unlock(&ledger->lock);
    return peak;
}

void ledger_shut(struct ledger *ledger, bool is_shut)
{
    (void)pthread_mutex_lock(&ledger->lock);
    ledger->is_shut = is_shut;
    (void)pthread_mutex_unlock(&ledger->lock);
}

static size_t *share_of(struct ledger *l, int owner)
{
    return &l->held[owner >= 0 && (size_t)owner < l->owners ? owner + 1 : 0];
}

/* Call with the lock held. */
static bool has_room(struct ledger *l, int owner, size_t bytes)
{
    size_t room = l->sum < l->max ? l->max - l->sum : 0;
    return !l->is_shut && bytes <= room && bytes <= room - bytes &&
           *share_of(l, owner) <= room - bytes - bytes;
}

static bool take(struct buf_purse *purse, size_t bytes)
{
    return purse_take((struct purse *)purse, bytes);
}

static void give(struct buf_purse *purse, size_t bytes)
{
    purse_give((struct purse *)purse, bytes);
}

void purse_open(struct purse *purse, struct ledger *ledger, int owner)
{
    *purse = (struct purse){
        .counts = {.take = take, .give = give}, .ledger = ledger, .owner = owner};
}

/* Call with the lock held. */
static bool take_locked(struct purse *purse, size_t bytes)
{
    struct ledger *l = purse->ledger;
    if (!has_room(l, purse->owner, bytes))
        return false;
    l->sum += bytes;
    *share_of(l, purse->owner) += bytes;
    purse->bytes += bytes;
    l->peak = l->sum > l->peak ? l->sum : l->peak;
    return true;
}

/* Call with the lock held. */
static void give_locked(struct purse *purse, size_t bytes)
{
    struct ledger *l = purse->ledger;
    bytes = bytes < purse->bytes ? bytes : purse->bytes;
    l->sum -= bytes;
    *share_of(l, purse->owner) -= bytes;
    purse->bytes -= bytes;
}

bool purse_take(struct purse *purse, size_t bytes)
{
    struct ledger *l = purse->ledger;
    if (!l || !bytes)
        return true;
    (void)pthread_mutex_lock(&l->lock);
    bool fits = take_locked(purse, bytes);
    (void)pthread_mutex_unlock(&l->lock);
    return fits;
}

bool purse_take_or_close(struct purse *purse, size_t bytes, struct purse *held)
{
    struct ledger *l = purse->ledger;
    if (!l || !bytes)
        return true;
    (void)pthread_mutex_lock(&l->lock);
    bool fits = take_locked(purse, bytes);
    if (!fits && held && held->ledger == l)
        give_locked(held, SIZE_MAX);
    (void)pthread_mutex_unlock(&l->lock);
    return fits;
}

void purse_give(struct purse *purse, size_t bytes)
{
    struct ledger *l = purse->ledger;
    if (!l)
        return;
    (void)pthread_mutex_lock(&l->lock);
    give_locked(purse, bytes);
    (void)pthread_mutex_unlock(&l->lock);
}

void purse_hand_to(struct purse *purse, int owner)
{
    struct ledger *l = purse->ledger;
    if (!l || purse->owner == owner)
        return;
    (void)pthread_mutex_lock(&l->lock);
    *share_of(l, purse->owner) -= purse->bytes;
    *share_of(l, owner) += purse->bytes;
    purse->owner = owner;
    (void)pthread_mutex_unlock(&l->lock);
}

void purse_close(struct purse *purse)
{
    purse_give(purse, SIZE_MAX);
}
