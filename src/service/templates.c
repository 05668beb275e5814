/* SPDX-License-Identifier: Apache-2.0 */

/* See templates.h. The table has an entry for each image and key that could have a template,
 * also while it has none. The live template is a separate object, because copies outlive it.
 * Its memory stays reserved until the last copy is gone: they share its pages. */

#include "service/templates.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/os/machine.h"
#include "base/str.h"
#include "run/warmth.h"
#include "service/later.h"
#include "template/box.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    TEMPLATES_MAX = 8, /* each holds one of the roots of images (proto/spawn.h) */
    TEMPLATES_PER_KEY = 4,
    ENTRIES_MAX = 64,
    COPIES_MAX = 24, /* of one template; the spawner can have SPAWN_MAX_FORKS of a box */
    WAITING_MAX = 8, /* runs that wait for their turn to be copied; others start cold */
    OWN_MB = 96, /* memory of the interpreter; the build measured the memory of the modules */
    STEADY_MS = 10000, /* a template that was used more recently makes no room for another */
    PAUSE_MS = 10000,  /* after the first failure; twice as long after each further one */
    PAUSES_MAX = 6,
    BUDGET_PAUSE_MS = 5000, /* after a start for which its key had no budget */
    DROP_MS = 3000,         /* for a start to be given up */
    CHARGE_MS = 2000,       /* between two looks at its CPU time */
};

enum entry_state { ENTRY_FREE, ENTRY_WANTED, ENTRY_STARTING, ENTRY_READY, ENTRY_FAILED };

/* A template box that lives, or has live copies. */
struct live {
    struct template_keeping *all;
    struct template_box box;
    pthread_mutex_t turn; /* held while a copy is made */
    unsigned refs;        /* the entry's, and one for each copy */
    unsigned copies;
    unsigned waiting;
    bool is_broken; /* it has failed; protected by `turn` */
    int owner;
    uint64_t charged_ns; /* CPU time that its key was charged for */
    uint64_t asked_ms;   /* clock_ms() of the last question about it */
    struct admit_need promised;
};

struct entry {
    enum entry_state state;
    uint32_t owner; /* as in run_spec */
    const struct runtime *runtime;
    struct run_image *image;
    struct live *live;
    uint64_t memory_mb; /* memory that the template may have */
    uint64_t used_ms;   /* clock_ms() */
    uint64_t retry_ms;
    unsigned failures;
    atomic_bool cancel;
};

struct template_keeping {
    struct state *state;
    struct template_keeper keeper;
    pthread_mutex_t lock; /* of everything but `turn`, which is taken without it */
    struct entry entries[ENTRIES_MAX];
};

struct start_work {
    struct later later;
    struct entry *entry;
};

/* Table. The lock is held in all of these. */

static struct entry *find(
    struct template_keeping *all, uint32_t owner, const char *image, const struct runtime *rt)
{
    for (size_t i = 0; i < ENTRIES_MAX; i++) {
        struct entry *e = &all->entries[i];
        if (e->state && e->owner == owner && str_eq(e->image->id, image) &&
            (!rt || e->runtime == rt))
            return e;
    }
    return NULL;
}

static void free_live(struct live *live)
{
    admit_give_back(live->all->state->admit, live->owner, &live->promised);
    (void)pthread_mutex_destroy(&live->turn);
    free(live);
}

static void unref(struct live *live)
{
    if (--live->refs == 0)
        free_live(live);
}

/* Code of the image lives in a template, and can use CPU time between two copies. */
static void charge(struct live *live)
{
    uint64_t used_ns = live->box.cpu_ns;
    if (used_ns <= live->charged_ns)
        return;
    admit_charge(
        live->all->state->admit, live->owner, (double)(used_ns - live->charged_ns) / 1e6);
    live->charged_ns = used_ns;
}

/* Ends the template of an entry. Its copies go on. No copy is being made: `waiting` is 0. */
static void drop(struct entry *e, enum entry_state next)
{
    if (e->live) {
        template_box_close(&e->live->box);
        unref(e->live);
    }
    e->live = NULL;
    e->state = next;
    if (next == ENTRY_FREE) {
        run_image_free(e->image);
        e->image = NULL;
    }
}

static void fail(struct entry *e, const char *reason)
{
    unsigned pauses = e->failures < PAUSES_MAX ? e->failures : PAUSES_MAX;
    log_event(LOG_WARN, "a template of an image was given up; its runs start cold", "image",
        e->image->id, "reason", reason, (char *)NULL);
    e->failures++;
    e->retry_ms = clock_ms() + ((uint64_t)PAUSE_MS << pauses);
    drop(e, ENTRY_FAILED);
}

static bool is_idle(const struct entry *e)
{
    return e->state == ENTRY_READY && !e->live->copies && !e->live->waiting;
}

/* The least recently used entry without a template makes room. */
static struct entry *new_entry(struct template_keeping *all)
{
    struct entry *oldest = NULL;
    for (size_t i = 0; i < ENTRIES_MAX; i++) {
        struct entry *e = &all->entries[i];
        if (!e->state)
            return e;
        bool has_none = e->state == ENTRY_WANTED || e->state == ENTRY_FAILED;
        if (has_none && (!oldest || e->used_ms < oldest->used_ms))
            oldest = e;
    }
    if (oldest)
        drop(oldest, ENTRY_FREE);
    return oldest;
}

static uint64_t memory_for(const struct run_image *image)
{
    return image->preload_mb * 3 / 2 + OWN_MB;
}

static struct entry *want(struct template_keeping *all, const struct template_use *use)
{
    struct entry *e = find(all, use->owner, use->image->id, use->runtime);
    if (!e && (e = new_entry(all))) {
        *e = (struct entry){.state = ENTRY_WANTED,
            .owner = use->owner,
            .runtime = use->runtime,
            .image = run_image_copy(use->image)};
        e->memory_mb = memory_for(use->image);
    }
    if (e)
        e->used_ms = clock_ms();
    return e;
}

/* Whether a copy can have these limits: not less memory than its template holds, and no more
 * of a limit that a process can only lower. */
static bool limits_fit(const struct live *live, const struct run_limits *l)
{
    const struct run_limits *has = &live->box.limits;
    return l->memory_mb << 20 > live->box.memory_bytes && l->stack_mb <= has->stack_mb &&
           l->open_files <= has->open_files && l->file_size_mb <= has->file_size_mb;
}

/* Copies. */

static const char *refuse(const struct entry *e, const struct template_use *use)
{
    if (!e)
        return TEMPLATE_NONE;
    if (e->state == ENTRY_FAILED)
        return TEMPLATE_FAILED;
    if (e->state != ENTRY_READY)
        return WARMTH_NOT_READY;
    if (!limits_fit(e->live, use->limits))
        return TEMPLATE_LIMITS;
    return e->live->copies >= COPIES_MAX || e->live->waiting >= WAITING_MAX ? TEMPLATE_FULL
                                                                            : NULL;
}

static const char *copy(
    void *context, const struct template_use *use, struct template_copy *ret)
{
    struct template_keeping *all = context;
    char why[TEMPLATE_REASON] = "";
    if (memory_for(use->image) > all->state->config.image_warm_mb)
        return TEMPLATE_NONE;
    (void)pthread_mutex_lock(&all->lock);
    struct entry *e = want(all, use);
    const char *reason = refuse(e, use);
    struct live *live = reason ? NULL : e->live;
    if (live) {
        live->refs++;
        live->waiting++;
    }
    (void)pthread_mutex_unlock(&all->lock);
    if (!live)
        return reason;
    (void)pthread_mutex_lock(&live->turn);
    bool is_whole = !live->is_broken && template_box_lives(&live->box);
    int r = is_whole ? template_box_copy(&live->box, use, ret, why) : -EPIPE;
    live->is_broken = r < 0 && r != -EAGAIN; /* waiting runs start cold at once */
    (void)pthread_mutex_unlock(&live->turn);
    (void)pthread_mutex_lock(&all->lock);
    live->waiting--;
    if (r == 0)
        live->copies++;
    e = find(all, use->owner, use->image->id, use->runtime);
    /* Threads that wait for their turn must not find a closed box: the last thread drops it.
     * Until then each of them fails as this one did. */
    if (r < 0 && r != -EAGAIN && e && e->live == live && !live->waiting)
        fail(e, why[0] ? why : "its box has ended");
    if (r < 0)
        unref(live);
    (void)pthread_mutex_unlock(&all->lock);
    if (r == 0)
        ret->held = live;
    return r == 0 ? NULL : r == -EAGAIN ? TEMPLATE_FULL : TEMPLATE_FAILED;
}

static void give(void *context, void *held)
{
    struct template_keeping *all = context;
    struct live *live = held;
    (void)pthread_mutex_lock(&all->lock);
    live->copies--;
    unref(live);
    (void)pthread_mutex_unlock(&all->lock);
}

/* Starts. */

static struct admit_need need_of(const struct state *state, const struct entry *e)
{
    const struct run_limits limits = template_limits(state->engine, e->runtime, e->memory_mb);
    const struct box_need box = limits_need(&limits);
    struct admit_need need = admit_need_session(&box);
    need.of[BUDGET_SESSIONS] = 0;
    return need;
}

static int open_box(struct state *state, struct entry *e, struct live *live, char *why)
{
    const struct template_spec spec = {.engine = state->engine,
        .runtime = e->runtime,
        .image = e->image,
        .owner = e->owner,
        .memory_mb = e->memory_mb,
        .cancel = &e->cancel};
    int r = template_box_open(&spec, &live->box, why);
    if (r == 0)
        charge(live);
    return r;
}

/* The entry is in state starting, so no other thread changes it. */
static enum run_status work(struct later *later, struct answer **ret_answer)
{
    struct entry *e = ((struct start_work *)later)->entry;
    struct state *state = later->state;
    struct template_keeping *all = state->templates;
    char why[TEMPLATE_REASON] = "";
    struct err err = {0};
    struct live *live = xcalloc(1, sizeof(*live));
    *live = (struct live){.all = all, .refs = 1, .owner = (int)e->owner - 1};
    template_box_init(&live->box);
    (void)pthread_mutex_init(&live->turn, NULL);
    const struct admit_need need = need_of(state, e);
    bool is_promised = admit_reserve(state->admit, live->owner, &need, &err) == 0;
    if (is_promised)
        live->promised = need;
    int r = is_promised ? open_box(state, e, live, why) : -EBUSY;
    (void)pthread_mutex_lock(&all->lock);
    e->live = live;
    if (r == 0 && !e->cancel) {
        e->state = ENTRY_READY;
        e->failures = 0;
        e->used_ms = clock_ms();
    } else if (e->cancel) {
        drop(e, ENTRY_FREE);
    } else if (!is_promised) {
        e->retry_ms = clock_ms() + BUDGET_PAUSE_MS;
        drop(e, ENTRY_WANTED);
    } else {
        fail(e, why);
    }
    (void)pthread_mutex_unlock(&all->lock);
    return RUN_OK;
}

static void free_work(struct later *later)
{
    free(later);
}

static void start(struct state *state, struct entry *e)
{
    struct start_work *w = xcalloc(1, sizeof(*w));
    struct err err = {0};
    *w = (struct start_work){
        .later = {.state = state, .owner = -1, .work = work, .free = free_work}, .entry = e};
    e->cancel = false;
    e->state = ENTRY_STARTING;
    if (later_start(&w->later, NULL, &err) < 0) {
        e->state = ENTRY_WANTED;
        e->retry_ms = clock_ms() + BUDGET_PAUSE_MS;
        later_free(&w->later);
    }
}

/* Room. The lock is held. */

struct room {
    unsigned count;
    uint64_t mb;
};

static struct room used_by(const struct template_keeping *all, uint32_t owner, bool by_all)
{
    struct room used = {0};
    for (size_t i = 0; i < ENTRIES_MAX; i++) {
        const struct entry *e = &all->entries[i];
        bool is_held = e->state == ENTRY_STARTING || e->state == ENTRY_READY;
        if (!is_held || (!by_all && e->owner != owner))
            continue;
        used.count++;
        used.mb += e->memory_mb;
    }
    return used;
}

/* The idle template to end next: the least recently used one of the key that has most. owner 0
 * of `only`: of any key. */
static struct entry *choose_victim(
    struct template_keeping *all, const uint32_t *only, uint64_t before_ms)
{
    struct entry *chosen = NULL;
    uint64_t chosen_mb = 0;
    for (size_t i = 0; i < ENTRIES_MAX; i++) {
        struct entry *e = &all->entries[i];
        if (!e->state || !is_idle(e) || e->used_ms > before_ms || (only && e->owner != *only))
            continue;
        uint64_t mb = used_by(all, e->owner, false).mb;
        if (!chosen || mb > chosen_mb || (mb == chosen_mb && e->used_ms < chosen->used_ms)) {
            chosen = e;
            chosen_mb = mb;
        }
    }
    return chosen;
}

/* Makes room for one more template of this owner; false when there is none. A key takes room
 * only from itself and from keys that have more. */
static bool make_room(struct template_keeping *all, const struct entry *for_whom, uint64_t now)
{
    uint64_t max_mb = all->state->config.image_warm_mb;
    uint64_t before = now > STEADY_MS ? now - STEADY_MS : 0;
    for (;;) {
        struct room own = used_by(all, for_whom->owner, false);
        struct room sum = used_by(all, 0, true);
        bool own_full = own.count >= TEMPLATES_PER_KEY;
        if (!own_full && sum.count < TEMPLATES_MAX && sum.mb + for_whom->memory_mb <= max_mb)
            return true;
        struct entry *victim = choose_victim(all, own_full ? &for_whom->owner : NULL, before);
        if (!victim || (victim->owner != for_whom->owner &&
                           used_by(all, victim->owner, false).mb <= own.mb))
            return false;
        drop(victim, ENTRY_FREE);
    }
}

static bool is_memory_short(const struct state *state)
{
    struct admit_state a;
    admit_get_state(state->admit, &a);
    bool is_promised = a.waiting && a.memory_promised_mb > a.memory_mb / 10 * 9;
    return is_promised ||
           machine_available_percent(state->meminfo_fd) < state->config.parked_free_percent;
}

/* Whether the entry should give its memory to its own key: the key waits for memory, and it has
 * no run whose end would free some. */
static bool is_in_the_way(const struct state *state, const struct entry *e)
{
    struct admit_use use;
    if (!is_idle(e))
        return false;
    admit_get_use(state->admit, e->live->owner, &use);
    return use.waiting && !use.running;
}

/* One start of each key at a time, so that none keeps the others waiting with imports that
 * hang. */
static bool is_starting(const struct template_keeping *all, uint32_t owner)
{
    for (size_t i = 0; i < ENTRIES_MAX; i++) {
        if (all->entries[i].state == ENTRY_STARTING && all->entries[i].owner == owner)
            return true;
    }
    return false;
}

/* Whether its box has ended. Nobody makes a copy meanwhile. */
static bool has_ended(struct live *live, uint64_t now)
{
    bool lives = template_box_lives(&live->box);
    charge(live);
    if (lives && now - live->asked_ms >= CHARGE_MS) {
        live->asked_ms = now;
        template_box_ask(&live->box);
    }
    return !lives;
}

static void tend(struct template_keeping *all, struct entry *e, uint64_t now, bool is_short)
{
    uint64_t idle_ms = all->state->config.image_warm_idle_s * 1000;
    bool is_old = now > e->used_ms && now - e->used_ms > idle_ms;
    if (e->state == ENTRY_READY && !e->live->waiting && has_ended(e->live, now))
        fail(e, "its box has ended");
    else if (is_in_the_way(all->state, e) ||
             (is_old && (e->state == ENTRY_WANTED || e->state == ENTRY_FAILED || is_idle(e))))
        drop(e, ENTRY_FREE);
    else if (e->state == ENTRY_FAILED && now >= e->retry_ms && now - e->used_ms < STEADY_MS)
        e->state = ENTRY_WANTED;
    else if (e->state == ENTRY_WANTED && !is_short && now >= e->retry_ms &&
             !is_starting(all, e->owner) && make_room(all, e, now))
        start(all->state, e);
}

void service_templates_tick(struct state *state)
{
    struct template_keeping *all = state->templates;
    if (!all || state->stopping)
        return;
    uint64_t now = clock_ms();
    bool is_short = is_memory_short(state);
    (void)pthread_mutex_lock(&all->lock);
    struct entry *victim = is_short ? choose_victim(all, NULL, now) : NULL;
    if (victim) /* at most one per tick: more may not be needed */
        drop(victim, ENTRY_FREE);
    for (size_t i = 0; i < ENTRIES_MAX; i++) {
        if (all->entries[i].state)
            tend(all, &all->entries[i], now, is_short);
    }
    (void)pthread_mutex_unlock(&all->lock);
}

bool service_templates_has(struct state *state, int owner, const char *image)
{
    struct template_keeping *all = state->templates;
    if (!all)
        return false;
    (void)pthread_mutex_lock(&all->lock);
    const struct entry *e = find(all, (uint32_t)(owner + 1), image, NULL);
    bool has = e && e->state == ENTRY_READY;
    (void)pthread_mutex_unlock(&all->lock);
    return has;
}

/* Drops idle templates of the owner and the image. True when one of these templates is still
 * being started. */
static bool drop_idle(struct template_keeping *all, int owner, const char *image)
{
    bool is_left = false;
    (void)pthread_mutex_lock(&all->lock);
    for (size_t i = 0; i < ENTRIES_MAX; i++) {
        struct entry *e = &all->entries[i];
        if (!e->state || (image && !str_eq(e->image->id, image)) ||
            (owner != TEMPLATES_OF_ALL && e->owner != (uint32_t)(owner + 1)))
            continue;
        if (e->state == ENTRY_STARTING) {
            e->cancel = true;
            is_left = true;
        } else if (!e->live || is_idle(e)) {
            drop(e, ENTRY_FREE);
        }
    }
    (void)pthread_mutex_unlock(&all->lock);
    return is_left;
}

void service_templates_drop(struct state *state, int owner, const char *image)
{
    uint64_t until_ms = clock_ms() + DROP_MS;
    while (
        state->templates && drop_idle(state->templates, owner, image) && clock_ms() < until_ms)
        (void)poll(NULL, 0, 10);
}

void service_templates_open(struct state *state)
{
    if (!state->engine || !state->images || !state->config.image_warm_mb || !state->config.warm)
        return;
    struct template_keeping *all = xcalloc(1, sizeof(*all));
    all->state = state;
    all->keeper = (struct template_keeper){.context = all, .copy = copy, .give = give};
    (void)pthread_mutex_init(&all->lock, NULL);
    state->templates = all;
    engine_set_templates(state->engine, &all->keeper);
}

void service_templates_close(struct state *state)
{
    struct template_keeping *all = state->templates;
    if (!all)
        return;
    engine_set_templates(state->engine, NULL);
    (void)drop_idle(all, TEMPLATES_OF_ALL, NULL);
    (void)pthread_mutex_destroy(&all->lock);
    free(all);
    state->templates = NULL;
}
