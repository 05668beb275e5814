/* SPDX-License-Identifier: Apache-2.0 */

/* See limits.h. */

#include "egress/limits.h"

#include "base/alloc.h"

#include <stdlib.h>

enum {
    THOUSAND = 1000,
    FILL_MS = 1000,        /* a longer pause fills no more than this */
    BYTES_PER_BURST = 5,   /* a fifth of a second's worth at once */
    MIN_BURST_BYTES = 4096 /* bytes; a slow rate must not send single bytes */
};

/* Largest rate and burst: thousandths of them fit into 63 bits. */
static const uint64_t max_rate = UINT64_C(1) << 50;

void bucket_set(struct bucket *b, uint64_t rate, uint64_t burst, uint64_t now_ms)
{
    bool is_first = b->at_ms == 0;
    b->rate = rate > max_rate ? UINT64_MAX : rate;
    b->burst = burst > max_rate ? max_rate : burst;
    b->at_ms = now_ms;
    if (is_first || b->thousands > (int64_t)b->burst * THOUSAND)
        b->thousands = (int64_t)b->burst * THOUSAND;
}

uint64_t bucket_level(struct bucket *b, uint64_t now_ms)
{
    if (b->rate == UINT64_MAX)
        return UINT64_MAX;
    uint64_t elapsed = now_ms > b->at_ms ? now_ms - b->at_ms : 0;
    b->thousands += (int64_t)((elapsed < FILL_MS ? elapsed : FILL_MS) * b->rate);
    if (b->thousands > (int64_t)b->burst * THOUSAND)
        b->thousands = (int64_t)b->burst * THOUSAND;
    b->at_ms = now_ms;
    return b->thousands < THOUSAND ? 0 : (uint64_t)b->thousands / THOUSAND;
}

void bucket_take(struct bucket *b, uint64_t amount)
{
    if (b->rate != UINT64_MAX)
        b->thousands -= (int64_t)(amount < max_rate ? amount : max_rate) * THOUSAND;
}

void account_limit(
    struct account *a, const struct network_limits *limits, bool is_key, uint64_t now_ms)
{
    uint64_t burst = limits->bytes_s / BYTES_PER_BURST;
    a->limits = *limits;
    if (is_key) {
        a->limits.connections_all = UINT32_MAX;
        a->limits.sent_bytes = a->limits.received_bytes = UINT64_MAX;
    }
    uint64_t per_s = limits->connections_s == UINT32_MAX ? UINT64_MAX : limits->connections_s;
    uint64_t asked_s = per_s == UINT64_MAX ? per_s : per_s * QUESTIONS_PER_CONNECTION;
    bucket_set(&a->attempts, per_s, per_s, now_ms);
    bucket_set(&a->questions, asked_s, asked_s, now_ms);
    for (int d = 0; d < DIRECTION_COUNT; d++)
        bucket_set(&a->rates[d], limits->bytes_s,
            burst < MIN_BURST_BYTES ? MIN_BURST_BYTES : burst, now_ms);
}

bool account_attempt(struct account *a, uint64_t now_ms)
{
    /* A refused attempt does not count for the key: otherwise one box that floods would use
     * up the share of the others. */
    for (struct account *each = a; each; each = each->parent)
        if (bucket_level(&each->attempts, now_ms) == 0)
            return false;
    for (; a; a = a->parent)
        bucket_take(&a->attempts, 1);
    return true;
}

bool account_connect(struct account *a, uint64_t now_ms)
{
    if (!account_attempt(a, now_ms))
        return false;
    for (const struct account *each = a; each; each = each->parent) {
        bool is_full = each->limits.connections != UINT32_MAX &&
                       each->connections >= each->limits.connections;
        bool is_spent = each->limits.connections_all != UINT32_MAX &&
                        each->connections_all >= each->limits.connections_all;
        if (is_full || is_spent)
            return false;
    }
    for (; a; a = a->parent) {
        a->connections++;
        a->connections_all++;
    }
    return true;
}

void account_disconnect(struct account *a)
{
    for (; a; a = a->parent)
        a->connections--;
}

void account_refuse(struct account *a)
{
    for (; a; a = a->parent) {
        a->connections--;
        a->connections_all--;
    }
}

bool account_ask(struct account *a, uint64_t now_ms)
{
    for (struct account *each = a; each; each = each->parent) {
        bool is_full =
            each->limits.lookups != UINT32_MAX && each->lookups >= each->limits.lookups;
        if (is_full || bucket_level(&each->questions, now_ms) == 0)
            return false;
    }
    for (; a; a = a->parent) {
        a->lookups++;
        bucket_take(&a->questions, 1);
    }
    return true;
}

void account_answered(struct account *a)
{
    for (; a; a = a->parent)
        a->lookups--;
}

uint64_t account_rate(struct account *a, enum direction d, uint64_t now_ms)
{
    uint64_t least = UINT64_MAX;
    for (; a; a = a->parent) {
        uint64_t level = bucket_level(&a->rates[d], now_ms);
        least = level < least ? level : least;
    }
    return least;
}

uint64_t account_left(const struct account *a, enum direction d)
{
    uint64_t limit = d == SENT ? a->limits.sent_bytes : a->limits.received_bytes;
    if (limit == UINT64_MAX)
        return UINT64_MAX;
    return a->bytes[d] < limit ? limit - a->bytes[d] : 0;
}

void account_move(struct account *a, enum direction d, uint64_t bytes)
{
    for (; a; a = a->parent) {
        a->bytes[d] += bytes;
        bucket_take(&a->rates[d], bytes);
    }
}

bool account_is_spent(const struct account *a)
{
    return account_left(a, SENT) == 0 || account_left(a, RECEIVED) == 0;
}

struct owner *owner_join(
    struct owner **list, uint32_t number, const struct network_limits *max, uint64_t now_ms)
{
    struct owner *owner = *list;
    while (owner && owner->number != number)
        owner = owner->next;
    if (!owner) {
        owner = xcalloc(1, sizeof(*owner));
        owner->number = number;
        owner->next = *list;
        account_limit(&owner->account, max, true, now_ms);
        *list = owner;
    }
    owner->boxes++;
    return owner;
}

void owner_leave(struct owner **list, struct owner *owner)
{
    if (--owner->boxes)
        return;
    while (*list != owner)
        list = &(*list)->next;
    *list = owner->next;
    free(owner);
}
