/* SPDX-License-Identifier: Apache-2.0 */

/* See admit_share.h. All budgets follow the same rule: a need fits when the key stays below
 * the most that one key may have, and all keys together stay below the total. A share is the
 * total divided by the number of active keys (keys that hold or want something), and by two
 * at least.
 *
 * A key may hold more than its share while no other key wants it. Once a waiter within its
 * share does not fit, keys above their share get nothing more of the budget that it lacks. The
 * shares add up to at most the total, so this waiter fits as soon as enough runs have ended.
 * Sessions do not end by themselves; for them see admit_find_excess().
 *
 * Places are lent: a key within its share does not wait for places that other keys hold above
 * theirs. Runs of others may last for minutes, and a place is no more than a share of the
 * processors, which the kernel divides. So there can be up to twice as many runs as places. */

#include "state/admit_share.h"

#include "base/clock.h"

#include <string.h>

enum {
    HOLD_MS = 3000, /* how long a large run holds back the smaller ones behind it */
    HOLD_EVERY_MS = 4 * HOLD_MS, /* and how often it may do so */
    OVER_COMMIT = 8,      /* promised processes for each real one: few boxes use all theirs */
    EXCESS_ONE = 1 << 16, /* the whole budget, in units of admit_find_excess() */
};

static const struct {
    const char *unit;
    const char *field;          /* the field of a request */
    enum admit_budget sessions; /* the budget that counts what sessions hold of this one */
    bool is_lent;
} rows[BUDGETS] = {
    [BUDGET_PLACES] = {"places", NULL, BUDGETS, true},
    [BUDGET_MEMORY] = {"MiB of memory", "limits.memory_mb", BUDGET_SESSION_MEMORY, false},
    [BUDGET_PROCESSES] = {"processes", "limits.processes", BUDGET_SESSION_PROCESSES, false},
    [BUDGET_SESSION_MEMORY] = {"MiB of memory for sessions", "limits.memory_mb",
        BUDGET_SESSION_MEMORY, false},
    [BUDGET_SESSION_PROCESSES] = {"processes for sessions", "limits.processes",
        BUDGET_SESSION_PROCESSES, false},
    [BUDGET_SESSIONS] = {"sessions", NULL, BUDGET_SESSIONS, false},
};

const char *share_unit(enum admit_budget budget)
{
    return rows[budget].unit;
}

const char *share_field(enum admit_budget budget)
{
    return rows[budget].field;
}

struct admit_need admit_need_run(const struct box_need *box)
{
    return (struct admit_need){{[BUDGET_PLACES] = 1,
        [BUDGET_MEMORY] = box->memory_mb,
        [BUDGET_PROCESSES] = box->processes}};
}

struct admit_need admit_need_exec(void)
{
    return (struct admit_need){{[BUDGET_PLACES] = 1}};
}

struct admit_need admit_need_session(const struct box_need *box)
{
    return (struct admit_need){{[BUDGET_MEMORY] = box->memory_mb,
        [BUDGET_PROCESSES] = box->processes,
        [BUDGET_SESSION_MEMORY] = box->memory_mb,
        [BUDGET_SESSION_PROCESSES] = box->processes,
        [BUDGET_SESSIONS] = 1}};
}

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* The process limits promised to one of several keys add up to less than the machine's
 * processes, so one key cannot use them all up. The promises to all keys together exceed
 * them. */
void share_open(struct admit *a)
{
    const struct admit_options *o = &a->options;
    const uint64_t processes = o->processes;
    a->is_shared = o->keys->count > 1;
    a->total = (struct admit_need){{
        [BUDGET_PLACES] = o->concurrency,
        [BUDGET_MEMORY] = o->memory_mb,
        [BUDGET_PROCESSES] = processes * OVER_COMMIT,
        [BUDGET_SESSION_MEMORY] = o->reserve_mb,
        [BUDGET_SESSION_PROCESSES] = processes * OVER_COMMIT / 4 * 3,
        [BUDGET_SESSIONS] = o->sessions,
    }};
    const uint64_t *total = a->total.of;
    struct admit_need most = a->total;
    if (a->is_shared)
        most = (struct admit_need){{
            [BUDGET_PLACES] = total[BUDGET_PLACES],
            [BUDGET_MEMORY] = total[BUDGET_MEMORY] - total[BUDGET_MEMORY] / 8,
            [BUDGET_PROCESSES] = processes - processes / 4,
            [BUDGET_SESSION_MEMORY] =
                total[BUDGET_SESSION_MEMORY] - total[BUDGET_SESSION_MEMORY] / 4,
            [BUDGET_SESSION_PROCESSES] = (processes - processes / 4) / 4 * 3,
            [BUDGET_SESSIONS] = total[BUDGET_SESSIONS] - total[BUDGET_SESSIONS] / 4,
        }};
    most.of[BUDGET_SESSIONS] = smaller(most.of[BUDGET_SESSIONS], o->sessions_per_key);
    for (size_t i = 0; i < a->tenant_count; i++) {
        uint32_t places = i ? o->keys->items[i - 1].concurrency : 0;
        a->tenants[i].most = most;
        if (places)
            a->tenants[i].most.of[BUDGET_PLACES] = places;
    }
}

static bool is_active(const struct tenant *t)
{
    bool is = t->waiting > 0;
    for (size_t b = 0; b < BUDGETS; b++)
        is = is || t->held.of[b];
    return is;
}

static void note_activity(struct admit *a, const struct tenant *t, bool was_active)
{
    a->active -= was_active;
    a->active += is_active(t);
}

void share_take(struct admit *a, struct tenant *t, const struct admit_need *need)
{
    bool was_active = is_active(t);
    for (size_t b = 0; b < BUDGETS; b++) {
        a->held.of[b] += need->of[b];
        t->held.of[b] += need->of[b];
    }
    note_activity(a, t, was_active);
}

void share_return(struct admit *a, struct tenant *t, const struct admit_need *need)
{
    bool was_active = is_active(t);
    for (size_t b = 0; b < BUDGETS; b++) {
        a->held.of[b] -= need->of[b];
        t->held.of[b] -= need->of[b];
    }
    note_activity(a, t, was_active);
}

void share_count_waiter(struct admit *a, struct tenant *t, int change)
{
    bool was_active = is_active(t);
    a->waiting += (uint32_t)change;
    t->waiting += (uint32_t)change;
    note_activity(a, t, was_active);
}

static bool has_room(uint64_t used, uint64_t need, uint64_t total)
{
    return used <= total && need <= total - used;
}

static uint64_t share_of(const struct admit *a, const struct shares *now, size_t b)
{
    uint64_t share = a->total.of[b] / now->divisor;
    return share ? share : smaller(1, a->total.of[b]);
}

bool share_is_within(const struct admit *a, const struct shares *now, const struct tenant *t,
    const struct admit_need *need)
{
    for (size_t b = 0; b < BUDGETS; b++) {
        uint64_t most = smaller(share_of(a, now, b), t->most.of[b]);
        if (need->of[b] && !has_room(t->held.of[b], need->of[b], most))
            return false;
    }
    return true;
}

bool share_is_above(
    const struct admit *a, const struct tenant *t, const struct admit_need *need)
{
    struct shares now = shares_now(a, NULL);
    bool is_above = false;
    for (size_t b = 0; b < BUDGETS; b++)
        is_above = is_above || (need->of[b] && t->held.of[b] > share_of(a, &now, b));
    return is_above || !a->is_shared;
}

enum admit_budget share_lacks(const struct admit *a, const struct shares *now,
    const struct tenant *t, const struct admit_need *need)
{
    bool is_within = share_is_within(a, now, t, need);
    for (size_t b = 0; b < BUDGETS; b++) {
        uint64_t used = is_within && rows[b].is_lent ? now->places_lent : a->held.of[b];
        bool is_saved = !is_within && now->saved & 1u << b;
        if (need->of[b] && (is_saved || !has_room(used, need->of[b], a->total.of[b]) ||
                               !has_room(t->held.of[b], need->of[b], t->most.of[b])))
            return (enum admit_budget)b;
    }
    return BUDGETS;
}

enum admit_budget share_forbids(const struct tenant *t, const struct admit_need *need)
{
    for (size_t b = 0; b < BUDGETS; b++) {
        if (need->of[b] > t->most.of[b])
            return (enum admit_budget)b;
    }
    return BUDGETS;
}

static uint64_t held_by_sessions(const struct admit_need *held, size_t b)
{
    return rows[b].sessions < BUDGETS ? held->of[rows[b].sessions] : 0;
}

/* Whether a run of t would fit if all other runs had ended. */
static bool can_come(
    const struct admit *a, const struct tenant *t, const struct admit_need *need)
{
    for (size_t b = 0; b < BUDGETS; b++) {
        if (!has_room(held_by_sessions(&a->held, b), need->of[b], a->total.of[b]) ||
            !has_room(held_by_sessions(&t->held, b), need->of[b], t->most.of[b]))
            return false;
    }
    return true;
}

static uint64_t count_places(const struct admit *a, const struct shares *now)
{
    uint64_t share = share_of(a, now, BUDGET_PLACES);
    uint64_t count = 0;
    for (size_t i = 0; i < a->tenant_count; i++)
        count += smaller(a->tenants[i].held.of[BUDGET_PLACES], share);
    return count;
}

/* The first waiter of t that is within its share, or NULL. */
static const struct admit_ticket *first_within(
    const struct admit *a, const struct shares *now, const struct tenant *t)
{
    const struct admit_ticket *w = t->first;
    while (w && !share_is_within(a, now, t, &w->need))
        w = w->next;
    return w;
}

static unsigned saved_budgets(const struct admit *a, const struct shares *now)
{
    unsigned saved = 0;
    for (size_t i = 0; a->waiting && i < a->tenant_count; i++) {
        const struct tenant *t = &a->tenants[i];
        const struct admit_ticket *w = first_within(a, now, t);
        if (w && can_come(a, t, &w->need))
            saved |= 1u << share_lacks(a, now, t, &w->need);
    }
    return saved & ~(1u << BUDGETS);
}

struct shares shares_now(const struct admit *a, const struct tenant *guest)
{
    struct shares now = {.divisor = 1, .places_lent = a->held.of[BUDGET_PLACES]};
    uint64_t active = a->active + (guest && !is_active(guest));
    if (a->is_shared)
        now.divisor = active > 2 ? active : 2;
    uint64_t places = a->total.of[BUDGET_PLACES];
    if (a->is_shared && now.places_lent >= places && now.places_lent < 2 * places)
        now.places_lent = count_places(a, &now);
    now.saved = a->is_shared ? saved_budgets(a, &now) : 0;
    return now;
}

/* A large run that would fit after others have ended gets a chance: for HOLD_MS no run behind
 * it is admitted, and again later. */
static bool is_holding_back(struct admit_ticket *w)
{
    uint64_t now = clock_ms();
    if (!w->unfit_ms)
        w->unfit_ms = now;
    return (now - w->unfit_ms) % HOLD_EVERY_MS < HOLD_MS;
}

struct admit_ticket *share_next(
    const struct admit *a, const struct shares *now, const struct tenant *t)
{
    const struct admit_need least = admit_need_exec();
    bool has_large = false;
    if (!t->first || share_lacks(a, now, t, &least) != BUDGETS)
        return NULL;
    for (struct admit_ticket *w = t->first; w; w = w->next) {
        if (share_lacks(a, now, t, &w->need) == BUDGETS)
            return w;
        if (!has_large && can_come(a, t, &w->need)) {
            has_large = true;
            if (is_holding_back(w))
                return NULL;
        }
    }
    return NULL;
}

/* Looks at the budgets that have no room for `need`. Returns by how much the sessions of t
 * exceed t's share of such a budget, in units of EXCESS_ONE; the largest number counts. */
static uint64_t excess_of(const struct admit *a, const struct shares *now,
    const struct tenant *t, const struct admit_need *need)
{
    uint64_t most = 0;
    for (size_t b = 0; b < BUDGETS; b++) {
        size_t s = rows[b].sessions;
        if (!need->of[b] || s == BUDGETS ||
            has_room(a->held.of[b], need->of[b], a->total.of[b]))
            continue;
        uint64_t share = share_of(a, now, s);
        uint64_t held = t->held.of[s];
        uint64_t excess = held > share ? (held - share) * EXCESS_ONE / a->total.of[s] + 1 : 0;
        most = excess > most ? excess : most;
    }
    return most;
}

/* Raises excess[i] to excess_of() for each key i other than t. */
static void add_excess(const struct admit *a, const struct shares *now, const struct tenant *t,
    const struct admit_need *need, uint64_t *excess)
{
    for (size_t i = 0; i < a->tenant_count; i++) {
        uint64_t above = &a->tenants[i] != t ? excess_of(a, now, &a->tenants[i], need) : 0;
        excess[i] = above > excess[i] ? above : excess[i];
    }
}

/* The same for the runs that wait for sessions to end. */
static void add_excess_for_waiters(
    const struct admit *a, const struct shares *now, uint64_t *excess)
{
    for (size_t i = 0; a->waiting && i < a->tenant_count; i++) {
        const struct tenant *t = &a->tenants[i];
        const struct admit_ticket *w = first_within(a, now, t);
        if (w && !can_come(a, t, &w->need))
            add_excess(a, now, t, &w->need, excess);
    }
}

bool admit_find_excess(
    struct admit *admit, int owner, const struct admit_need *need, uint64_t *ret_excess)
{
    const struct tenant *t = need ? &admit->tenants[owner + 1] : NULL;
    bool has_any = false;
    memset(ret_excess, 0, admit->tenant_count * sizeof(*ret_excess));
    (void)pthread_mutex_lock(&admit->lock);
    struct shares now = shares_now(admit, t);
    if (!t)
        add_excess_for_waiters(admit, &now, ret_excess);
    else if (share_is_within(admit, &now, t, need))
        add_excess(admit, &now, t, need, ret_excess);
    (void)pthread_mutex_unlock(&admit->lock);
    for (size_t i = 0; i < admit->tenant_count; i++)
        has_any = has_any || ret_excess[i];
    return has_any;
}
