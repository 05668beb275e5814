/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The inside of admission, for state/admit.c and state/admit_share.c: budgets, and the part of
 * them that each key has. Call these functions with the lock of struct admit held, except
 * share_open(), share_forbids(), share_unit() and share_field(), which use constants only. */

#include "state/admit.h"

#include <pthread.h>

/* A bucket that fills up with time. `level` may fall below zero for budgets that are charged
 * after use. */
struct bucket {
    double level;
    double size;
    double per_ns;
    uint64_t at_ns;
};

/* A key, or all callers without one. */
struct tenant {
    struct admit_ticket *first; /* list of waiters */
    struct admit_ticket *last;
    uint32_t waiting;
    struct admit_need held;
    struct admit_need most;            /* the most that it may ever hold */
    struct bucket per_s, per_m, cpu_s; /* size 0: no limit */
};

struct admit {
    struct admit_options options;
    pthread_mutex_t lock;
    struct tenant *tenants; /* [0] is for callers without a key */
    size_t tenant_count;
    size_t turn;     /* index of the tenant whose turn it is */
    bool is_shared;  /* there are several keys */
    uint32_t active; /* keys that hold or want something */
    uint32_t waiting;
    struct admit_need held;
    struct admit_need total;
    uint64_t refused;
    double mean_ms; /* running mean of the time that a run holds its place */
    bool closed;
};

/* Computes the budgets and the most that each key may have, from the options. */
void share_open(struct admit *a);

/* Every change of the budgets of a key, or of the number of its waiting runs, goes through
 * these functions. */
void share_take(struct admit *a, struct tenant *t, const struct admit_need *need);
void share_return(struct admit *a, struct tenant *t, const struct admit_need *need);
void share_count_waiter(struct admit *a, struct tenant *t, int change);

/* The state of all shares at one moment. */
struct shares {
    uint64_t divisor;     /* a share is the budget divided by this */
    uint64_t places_lent; /* places in use, without places above the share of a key */
    unsigned saved;       /* one bit per budget: kept for a waiter that is within its share */
};

/* Computes the shares. `guest` (or NULL) is counted as active even if it holds nothing. */
struct shares shares_now(const struct admit *a, const struct tenant *guest);

/* Whether t stays within its share when this need is granted. */
bool share_is_within(const struct admit *a, const struct shares *now, const struct tenant *t,
    const struct admit_need *need);

/* Whether t holds more than its share of a budget that the need uses. */
bool share_is_above(
    const struct admit *a, const struct tenant *t, const struct admit_need *need);

/* The budget that prevents this need of t now; BUDGETS when none does. */
enum admit_budget share_lacks(const struct admit *a, const struct shares *now,
    const struct tenant *t, const struct admit_need *need);

/* The budget of which t can never have enough for this need; BUDGETS when there is none. */
enum admit_budget share_forbids(const struct tenant *t, const struct admit_need *need);

/* The next waiter of t that fits now, or NULL. */
struct admit_ticket *share_next(
    const struct admit *a, const struct shares *now, const struct tenant *t);

/* The unit for messages ("MiB of memory"), and the field of a request or NULL. */
const char *share_unit(enum admit_budget budget);
const char *share_field(enum admit_budget budget);
