/* SPDX-License-Identifier: Apache-2.0 */

/* See shares.h. While only one owner has busy boxes, each of them has the whole weight: they
 * are equal, and nothing is written when they come and go. */

#include "spawn/shares.h"

#include "base/clock.h"
#include "spawn/box.h"

enum {
    WHOLE = WEIGHT_MAX,
    ALL_IDLE = WHOLE / 64, /* of all idle boxes of one owner together */
    STEP_MS = 20,          /* least time between two passes over all boxes */
    CALM_MS = 1000, /* time that the second owner is remembered after its last busy box */
    REST_MS = 1000, /* time that a box stays busy after a command with is_idle */
};

_Static_assert((int)SHARES_MAX_OWNERS >= (int)MAX_BOXES, "every box may have another owner");

static struct share *find(struct shares *shares, uint32_t owner)
{
    unsigned i = 0;
    while (i < shares->count && shares->items[i].owner != owner)
        i++;
    return i < shares->count ? &shares->items[i] : NULL;
}

/* Called when the numbers of boxes have changed. */
static void note(struct shares *shares)
{
    if (shares->busy_owners > 1) {
        shares->is_contended = true;
        shares->contended_ms = clock_ms();
    }
    shares->is_stale = shares->is_stale || shares->is_contended;
}

static void count(struct shares *shares, struct share *share, bool is_busy, int step)
{
    unsigned before = share->busy;
    uint16_t *number = is_busy ? &share->busy : &share->idle;
    *number = (uint16_t)(*number + step);
    shares->busy_owners += !before && share->busy;
    if (before && !share->busy && shares->busy_owners-- == 2)
        shares->contended_ms = clock_ms();
    /* Idle boxes divide ALL_IDLE, so each change concerns all of them. */
    shares->is_stale = shares->is_stale || !is_busy;
}

void shares_enter(struct spawner *s, struct box *box, uint32_t owner)
{
    struct shares *shares = &s->shares;
    struct share *share = find(shares, owner);
    if (!share) {
        share = &shares->items[shares->count++];
        *share = (struct share){.owner = owner};
    }
    box->owner = owner;
    box->has_owner = true;
    box->is_busy = owner != SPAWN_OWNER_IDLE;
    count(shares, share, box->is_busy, 1);
    note(shares);
}

static void change(struct shares *shares, struct box *box, bool is_busy)
{
    struct share *share = find(shares, box->owner);
    count(shares, share, box->is_busy, -1);
    count(shares, share, is_busy, 1);
    note(shares);
    box->is_busy = is_busy;
}

void shares_set_busy(struct spawner *s, struct box *box)
{
    box->idle_ms = 0;
    if (!box->has_owner || box->is_busy)
        return;
    change(&s->shares, box, true);
    shares_weigh(s, box);
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
    return !a || (b && b < a) ? b : a;
}

void shares_set_idle(struct spawner *s, struct box *box)
{
    if (!box->has_owner || !box->is_busy || box->is_dying || box->idle_ms)
        return;
    box->idle_ms = clock_ms() + REST_MS;
    s->shares.idle_ms = earlier(s->shares.idle_ms, box->idle_ms);
}

void shares_leave(struct spawner *s, struct box *box)
{
    struct shares *shares = &s->shares;
    if (!box->has_owner)
        return;
    struct share *share = find(shares, box->owner);
    count(shares, share, box->is_busy, -1);
    note(shares);
    box->has_owner = false;
    if (!share->busy && !share->idle)
        *share = shares->items[--shares->count];
}

/* The weight that the box should have. A ready box, which has no owner yet, has the whole
 * weight. */
static uint32_t weight_of(struct shares *shares, const struct box *box)
{
    if (!box->has_owner)
        return WHOLE;
    const struct share *share = find(shares, box->owner);
    uint32_t weight = !box->is_busy          ? ALL_IDLE / share->idle
                      : shares->is_contended ? (uint32_t)WHOLE / share->busy
                                             : WHOLE;
    return weight ? weight : 1;
}

/* Changes of less than a quarter are not worth a write. */
static void weigh(const struct spawner *s, struct cgroup_leaf *leaf, uint32_t should)
{
    uint32_t is = leaf->weight;
    if (should > is + is / 4 || should < is - is / 4)
        cgroup_leaf_weigh(&s->cgroups, leaf, should);
}

void shares_weigh(struct spawner *s, struct box *box)
{
    uint32_t should = weight_of(&s->shares, box);
    weigh(s, &box->leaf, should);
    if (box->is_aside)
        weigh(s, &box->aside, should > 4 ? should / 4 : 1);
}

/* When shares_tend() has something to do, clock_ms(); 0 for never. */
static uint64_t due_ms(const struct shares *shares)
{
    bool is_ending = shares->is_contended && shares->busy_owners < 2;
    uint64_t stale_ms = shares->is_stale ? shares->done_ms + STEP_MS : 0;
    uint64_t calm_ms = is_ending ? shares->contended_ms + CALM_MS : 0;
    return earlier(earlier(stale_ms, calm_ms), shares->idle_ms);
}

int shares_pause_ms(const struct spawner *s)
{
    uint64_t due = due_ms(&s->shares);
    uint64_t now = due ? clock_ms() : 0;
    return !due ? -1 : due > now ? (int)(due - now) : 0;
}

static void find_idle(struct spawner *s, uint64_t now_ms)
{
    s->shares.idle_ms = 0;
    for (unsigned i = 0; i < s->box_end; i++) {
        struct box *box = &s->boxes[i];
        if (!box->has_owner || !box->idle_ms)
            continue;
        if (box->idle_ms > now_ms) {
            s->shares.idle_ms = earlier(s->shares.idle_ms, box->idle_ms);
            continue;
        }
        box->idle_ms = 0;
        change(&s->shares, box, false);
    }
}

void shares_tend(struct spawner *s)
{
    struct shares *shares = &s->shares;
    if (shares_pause_ms(s) != 0)
        return;
    uint64_t now_ms = clock_ms();
    if (shares->idle_ms && shares->idle_ms <= now_ms)
        find_idle(s, now_ms);
    if (shares->busy_owners < 2 && now_ms >= shares->contended_ms + CALM_MS)
        shares->is_contended = false;
    shares->is_stale = false;
    shares->done_ms = now_ms;
    for (unsigned i = 0; i < s->box_end; i++) {
        if (s->boxes[i].has_owner)
            shares_weigh(s, &s->boxes[i]);
    }
}
