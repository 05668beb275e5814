/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What core/admit*.c know: budgets and the part of them that each key has. All of it with the
 * lock of struct admit. */

#include "state/admit.h"

#include <pthread.h>

/* A bucket that fills up with time. `level` may fall below zero for budgets that are charged
 * afterwards. */
struct bucket {
    double level;
    double size;
    double per_ns;
    uint64_t at_ns;
};

/* A key, or all callers without one. */
struct tenant {
    struct admit_ticket *first; /* that wait */
    struct admit_ticket *last;
    uint32_t waiting;
    struct admit_need held;
    struct admit_need most;            /* that it may ever hold */
    struct bucket per_s, per_m, cpu_s; /* size 0: no limit */
};

struct admit {
    struct admit_options options;
    pthread_mutex_t lock;
    struct tenant *tenants; /* [0] is for callers without a key */
    size_t tenant_count;
    size_t turn;     /* whose turn it is */
    bool is_shared;  /* there are several keys */
    uint32_t active; /* keys that hold or want something */
    uint32_t waiting;
    struct admit_need held;
    struct admit_need total;
    uint64_t refused;
    double mean_ms; /* how long a run holds its place, lately */
    bool closed;
};

/* Budgets and what each key may have of them, from the options. */
void share_open(struct admit *a);

/* All changes of what a key holds and how many of its runs wait go through these. */
void share_take(struct admit *a, struct tenant *t, const struct admit_need *need);
void share_return(struct admit *a, struct tenant *t, const struct admit_need *need);
void share_count_waiter(struct admit *a, struct tenant *t, int change);

/* The state of all shares at one moment. */
struct shares {
    uint64_t divisor;     /* a share is a budget divided by this */
    uint64_t places_lent; /* places in use, without those that keys hold above their share */
    unsigned saved;       /* bit by budget: kept for a waiter that is within its share */
};

/* With `guest` counted among the active keys, or NULL. */
struct shares shares_now(const struct admit *a, const struct tenant *guest);

/* Whether t would be within its share with this need granted. */
bool share_is_within(const struct admit *a, const struct shares *now, const struct tenant *t,
    const struct admit_need *need);

/* Whether t holds more than its share of what is needed. */
bool share_is_above(
    const struct admit *a, const struct tenant *t, const struct admit_need *need);

/* The budget that keeps a need of t out; BUDGETS when none does. */
enum admit_budget share_lacks(const struct admit *a, const struct shares *now,
    const struct tenant *t, const struct admit_need *need);

/* The budget that makes this need impossible for t for ever; BUDGETS when none does. */
enum admit_budget share_forbids(const struct tenant *t, const struct admit_need *need);

/* The waiter of t that can be let in, or NULL. */
struct admit_ticket *share_next(
    const struct admit *a, const struct shares *now, const struct tenant *t);

/* "MiB of memory" and the field of a request, or NULL. */
const char *share_unit(enum admit_budget budget);
const char *share_field(enum admit_budget budget);
