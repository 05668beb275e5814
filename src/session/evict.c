/* SPDX-License-Identifier: Apache-2.0 */

/* Makes room for a session or a run that is within the share of its key. It ends idle sessions
 * of keys above their share, starting with the key furthest above and its longest idle session.
 * A session that runs code is never ended. */

#include "session/internal.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/log.h"
#include "state/state.h"

#include <errno.h>

/* Sessions ended for one request; the bound only keeps the loop finite. */
enum { TRIES = 256 };

/* Whether `a` should be ended before `b`. */
static bool goes_before(const struct session *a, uint64_t excess_a, uint64_t used_a,
    const struct session *b, uint64_t excess_b, uint64_t used_b)
{
    if (!b || a->owner_index == b->owner_index || excess_a == excess_b)
        return !b || used_a < used_b;
    return excess_a > excess_b;
}

/* Chooses the session to end, or NULL. The caller owns a reference. */
static struct session *choose(struct sessions *all, const uint64_t *excess)
{
    struct session *chosen = NULL;
    uint64_t chosen_ms = 0;
    (void)pthread_mutex_lock(&all->lock);
    for (struct session *s = all->first; s; s = s->next) {
        uint64_t own = excess[s->owner_index + 1];
        (void)pthread_mutex_lock(&s->lock);
        bool is_idle = s->state == SESSION_IDLE || s->state == SESSION_DEAD;
        bool is_eligible = is_idle && !s->waiters && s->promised.of[BUDGET_SESSIONS];
        uint64_t used_ms = s->used_ms;
        (void)pthread_mutex_unlock(&s->lock);
        if (own && is_eligible &&
            goes_before(s, own, used_ms, chosen, chosen ? excess[chosen->owner_index + 1] : 0,
                chosen_ms)) {
            chosen = s;
            chosen_ms = used_ms;
        }
    }
    if (chosen)
        chosen->refs++;
    (void)pthread_mutex_unlock(&all->lock);
    return chosen;
}

/* Ends one session of a key above its share. False when there is none. */
static bool evict_one(struct sessions *all, const uint64_t *excess)
{
    struct err ignored = {0};
    struct session *s = choose(all, excess);
    if (!s)
        return false;
    if (session_take(s, false, true, -1, &ignored) == 0) {
        session_end_held(s, "evicted",
            "its key had more than its share of sessions and another key needed the room");
        all->state->metrics.evicted++;
        log_event(LOG_INFO, "session evicted", "session", s->id, "key", s->owner, (char *)NULL);
        session_drop_checkpoints(s);
    }
    session_unref(s);
    return true;
}

static uint64_t *excess_new(const struct sessions *all)
{
    return xcalloc(all->state->keys.count + 1, sizeof(uint64_t));
}

void sessions_make_room(struct sessions *all, unsigned most)
{
    struct admit *admit = all->state->admit;
    cleanup_free uint64_t *excess = excess_new(all);
    for (unsigned i = 0; i < most; i++) {
        if (!admit_find_excess(admit, -1, NULL, excess) || !evict_one(all, excess))
            return;
    }
}

int session_reserve(struct session *s, struct admit_need *ret, struct err *err)
{
    struct admit *admit = s->all->state->admit;
    /* A place takes nothing of this machine's budgets but the session itself. */
    struct box_need box = {0};
    if (!s->spec.place)
        box = limits_need(&s->spec.limits);
    const struct admit_need need = admit_need_session(&box);
    cleanup_free uint64_t *excess = NULL;
    int r = admit_check(admit, s->owner_index, err);
    if (r < 0)
        return r;
    for (unsigned i = 0; i < TRIES; i++) {
        r = admit_reserve(admit, s->owner_index, &need, err);
        if (r == 0)
            *ret = need;
        if (r == 0 || err->code != ERR_BUSY || s->is_preview)
            return r; /* no session has to go for a preview */
        excess = excess ? excess : excess_new(s->all);
        if (!admit_find_excess(admit, s->owner_index, &need, excess) ||
            !evict_one(s->all, excess))
            return r;
        *err = (struct err){0};
    }
    return r;
}

int session_admit(struct state *state, int owner, const struct admit_need *need,
    struct admit_ticket *ret, struct err *err)
{
    int r = admit_begin(state->admit, owner, need, ret, err);
    if (r == 0 && ret->wake_fd >= 0)
        sessions_make_room(state->sessions, (unsigned)state->config.max_sessions);
    return r;
}
