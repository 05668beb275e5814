/* SPDX-License-Identifier: Apache-2.0 */

/* Admission under random calls, against rules that are written down here a second time:
 * - no budget is exceeded, by all or by one key; places only by what is lent;
 * - nobody that fits and is within its share waits, unless a large run of its own key holds it
 *   back;
 * - within a key first come first served, but for runs that cannot fit beside the sessions;
 * - in the end nothing is held. */

#include "test.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "state/admit.h"

enum {
    KEYS = 4,
    TICKETS = 64,
    STEPS = 40000,
    PLACES = 6,
    QUEUE = 24,
    MEMORY = 1000,
    SESSION_MEMORY = 750,
    PROCESSES = 100,
    PROMISED_PROCESSES = 800, /* eight times as many */
    SESSIONS = 12,
};

static struct key items[KEYS] = {
    {.name = "a"}, {.name = "b"}, {.name = "c", .concurrency = 3}, {.name = "d"}};
static const struct keys keys = {.items = items, .count = KEYS};

/* What one key may have, of what is divided by shares. */
static const uint64_t totals[BUDGETS] = {
    PLACES, MEMORY, PROMISED_PROCESSES, SESSION_MEMORY, PROMISED_PROCESSES / 4 * 3, SESSIONS};
static const uint64_t mosts[BUDGETS] = {PLACES, 875, 75, 563, 54, 9};

struct entry {
    bool is_used;
    bool is_session;
    unsigned serial; /* order of arrival */
    enum admit_place before;
    struct admit_ticket ticket; /* of a session: owner and need */
};

static struct entry entries[TICKETS];
static unsigned serials;

static bool holds(const struct entry *e)
{
    return e->is_used && (e->is_session || e->ticket.place == PLACE_TAKEN);
}

static bool waits(const struct entry *e)
{
    return e->is_used && !e->is_session && e->ticket.place == PLACE_WAITING;
}

/* Sum of what a key (or all, with -2) holds; `only_sessions` leaves runs out. */
static uint64_t held_of(int owner, size_t b, bool only_sessions)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < TICKETS; i++) {
        const struct entry *e = &entries[i];
        if (holds(e) && (owner == -2 || e->ticket.owner == owner) &&
            (e->is_session || !only_sessions))
            sum += e->ticket.need.of[b];
    }
    return sum;
}

static uint64_t most_of(int owner, size_t b)
{
    return b == BUDGET_PLACES && items[owner].concurrency ? items[owner].concurrency : mosts[b];
}

static uint64_t share_of(size_t b)
{
    uint64_t active = 0;
    for (int k = 0; k < KEYS; k++) {
        bool is_active = false;
        for (size_t i = 0; i < TICKETS; i++)
            is_active = is_active || ((holds(&entries[i]) || waits(&entries[i])) &&
                                         entries[i].ticket.owner == k);
        active += is_active;
    }
    uint64_t share = totals[b] / (active > 2 ? active : 2);
    return share ? share : 1;
}

/* Places without those above a share. */
static uint64_t places_within(void)
{
    uint64_t sum = 0;
    for (int k = 0; k < KEYS; k++) {
        uint64_t held = held_of(k, BUDGET_PLACES, false);
        uint64_t share = share_of(BUDGET_PLACES);
        sum += held < share ? held : share;
    }
    return sum;
}

static bool fits_within_share(const struct entry *e)
{
    const uint64_t *need = e->ticket.need.of;
    int owner = e->ticket.owner;
    for (size_t b = 0; b < BUDGETS; b++) {
        uint64_t used = b == BUDGET_PLACES ? places_within() : held_of(-2, b, false);
        uint64_t own = held_of(owner, b, false) + need[b];
        if (need[b] &&
            (own > share_of(b) || own > most_of(owner, b) || used + need[b] > totals[b]))
            return false;
    }
    return true;
}

/* Whether it would fit if no run went on. */
static bool can_come(const struct entry *e)
{
    for (size_t b = BUDGET_MEMORY; b <= BUDGET_PROCESSES; b++) {
        uint64_t need = e->ticket.need.of[b];
        if (held_of(-2, b, true) + need > totals[b] ||
            held_of(e->ticket.owner, b, true) + need > most_of(e->ticket.owner, b))
            return false;
    }
    return true;
}

static void check_budgets(struct admit *a)
{
    struct admit_state now;
    admit_get_state(a, &now);
    for (size_t b = 0; b < BUDGETS; b++) {
        if (b != BUDGET_PLACES)
            assert_true(held_of(-2, b, false) <= totals[b]);
        for (int k = 0; k < KEYS; k++)
            assert_true(held_of(k, b, false) <= most_of(k, b));
    }
    assert_int_equal(now.running, held_of(-2, BUDGET_PLACES, false));
    assert_int_equal(now.memory_promised_mb, held_of(-2, BUDGET_MEMORY, false));
    assert_true(now.running <= now.running_max);
}

/* Whether an earlier run of the same key that could come may hold this one back. */
static bool is_held_back(const struct entry *e)
{
    for (size_t i = 0; i < TICKETS; i++) {
        const struct entry *other = &entries[i];
        if (waits(other) && other->ticket.owner == e->ticket.owner &&
            other->serial < e->serial && can_come(other))
            return true;
    }
    return false;
}

static void check_order(void)
{
    for (size_t i = 0; i < TICKETS; i++) {
        struct entry *e = &entries[i];
        if (waits(e) && !is_held_back(e))
            assert_false(fits_within_share(e));
        bool came_in = holds(e) && !e->is_session && e->before == PLACE_WAITING;
        if (came_in)
            assert_false(is_held_back(e));
    }
    for (size_t i = 0; i < TICKETS; i++)
        entries[i].before = entries[i].ticket.place;
}

static struct entry *free_entry(void)
{
    for (size_t i = 0; i < TICKETS; i++) {
        if (!entries[i].is_used)
            return &entries[i];
    }
    return NULL;
}

static struct box_need random_box(void)
{
    static const uint64_t sizes[] = {1, 10, 10, 50, 100, 300, 500, 870, 876, 5000};
    return (struct box_need){
        .memory_mb = sizes[(size_t)rand() % (sizeof(sizes) / sizeof(sizes[0]))],
        .processes = rand() % 8 ? 1 + (uint64_t)rand() % 5 : (uint64_t)rand() % 90};
}

static void come(struct admit *a)
{
    struct entry *e = free_entry();
    struct err err = {0};
    int owner = rand() % 3 ? rand() % KEYS : 0; /* one is greedy */
    const struct box_need box = random_box();
    if (!e)
        return;
    *e = (struct entry){.is_session = rand() % 4 == 0, .serial = ++serials};
    int r;
    if (e->is_session) {
        e->ticket.owner = owner;
        e->ticket.need = admit_need_session(&box);
        r = admit_reserve(a, owner, &e->ticket.need, &err);
    } else {
        const struct admit_need need = rand() % 5 ? admit_need_run(&box) : admit_need_exec();
        r = admit_begin(a, owner, &need, &e->ticket, &err);
        e->before = PLACE_WAITING;
    }
    e->is_used = r == 0;
}

static void go(struct admit *a, struct entry *e)
{
    if (e->is_session)
        admit_give_back(a, e->ticket.owner, &e->ticket.need);
    else
        admit_drop(a, &e->ticket);
    e->is_used = false;
}

static void step(struct admit *a, int busy)
{
    struct entry *e = &entries[rand() % TICKETS];
    if (rand() % 10 < busy) {
        come(a);
    } else if (e->is_used && holds(e) && !e->is_session && rand() % 4 == 0) {
        admit_drop(a, &e->ticket);
        check_order();
        admit_resume(a, &e->ticket);
        e->serial = 0; /* before the others of its key */
        e->before = PLACE_WAITING;
    } else if (e->is_used) {
        go(a, e);
    }
    for (size_t i = 0; i < TICKETS; i++) {
        if (entries[i].is_used && entries[i].ticket.place == PLACE_EVICTED)
            go(a, &entries[i]);
    }
}

static void random_calls_keep_the_rules(void **state)
{
    for (unsigned seed = 1; seed <= 4; seed++) {
        struct admit *a = admit_new(&(struct admit_options){.keys = &keys,
            .concurrency = PLACES,
            .queue = QUEUE,
            .wait_ms = 1000,
            .memory_mb = MEMORY,
            .reserve_mb = SESSION_MEMORY,
            .processes = PROCESSES,
            .sessions = SESSIONS,
            .sessions_per_key = SESSIONS});
        struct admit_state now;
        srand(seed);
        for (unsigned i = 0; i < STEPS / 4; i++) {
            step(a, 3 + (int)(i / 500 % 5)); /* more or less to do */
            check_budgets(a);
            check_order();
        }
        for (size_t i = 0; i < TICKETS; i++) {
            if (entries[i].is_used)
                go(a, &entries[i]);
        }
        admit_get_state(a, &now);
        assert_int_equal(now.running + now.waiting, 0);
        assert_int_equal(now.memory_promised_mb + now.processes_promised, 0);
        admit_free(a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_calls_keep_the_rules),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
