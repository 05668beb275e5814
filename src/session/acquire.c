/* SPDX-License-Identifier: Apache-2.0 */

/* Turns: one caller at a time holds a session. Other callers wait in the order they came, or
 * get ERR_CONFLICT. */

#include "session/internal.h"

#include "base/clock.h"
#include "session/backend.h"
#include "state/state.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <time.h>

/* NAP_MS bounds how late a waiting caller notices that its client has left. */
enum { WAITERS_MAX = 32, NAP_MS = 100 };

/* Whether it is this waiter's turn. With NULL: whether no one is waiting. */
static bool is_turn(const struct session *s, const struct session_waiter *waiter)
{
    return s->waiters == waiter;
}

static void leave_queue(struct session *s, struct session_waiter *waiter)
{
    struct session_waiter **at = &s->waiters;
    while (*at && *at != waiter)
        at = &(*at)->next;
    if (*at)
        *at = waiter->next;
}

static int enter_queue(struct session *s, struct session_waiter *waiter, struct err *err)
{
    struct session_waiter **at = &s->waiters;
    unsigned count = 0;
    for (; *at; at = &(*at)->next)
        count++;
    if (count >= WAITERS_MAX)
        return err_set(err, ERR_CONFLICT, EBUSY,
            "the session is busy and %d requests wait for it already", WAITERS_MAX);
    *at = waiter;
    return 0;
}

/* Files of a backend's place may be there, and no session goes on in another place. */
static int refuse_gone(const struct session *s, const char *how, struct err *err)
{
    const char *place = session_backend_name(s);
    if (!place)
        return err_set(err, ERR_CONFLICT, ESTALE,
            "the session %s (%s); its state and its files are gone: make a new one", how,
            s->message);
    return err_set(err, ERR_CONFLICT, ESTALE,
        "the session %s (%s); its state on backend %s is gone: make a new one", how, s->message,
        place);
}

/* Why the session cannot be taken. 0 when the caller only has to wait for its turn. */
static int why_not(const struct session *s, bool also_dead, struct err *err)
{
    if (s->is_deleted)
        return session_not_found(s->id, err);
    if (s->state == SESSION_EXPIRED)
        return refuse_gone(s, "has expired", err);
    if (s->is_past)
        return refuse_gone(s, "is dead", err);
    if (s->state == SESSION_DEAD && !also_dead)
        return err_set(err, ERR_CONFLICT, ESTALE,
            "the session is dead (%s) and its state is lost; POST /v1/sessions/%s/reset starts "
            "a new interpreter in it",
            s->message, s->id);
    return 0;
}

int session_reach(struct session *s, bool also_dead, struct err *err)
{
    session_refresh(s);
    int r = why_not(s, also_dead, err);
    if (r < 0)
        return r;
    bool has_box = s->box.socket >= 0;
    if (s->state == SESSION_DEAD && !has_box)
        return err_set(err, ERR_CONFLICT, ESTALE,
            "the session has no box any more (%s), and no files; POST /v1/sessions/%s/reset "
            "gives it a new box",
            s->message, s->id);
    if (s->state == SESSION_STARTING || !has_box || !(also_dead || s->has_interpreter))
        return err_set(err, ERR_CONFLICT, EBUSY,
            "the session's interpreter is starting; try again in a moment");
    return 0;
}

static bool is_free(const struct session *s, bool also_dead)
{
    return s->state == SESSION_IDLE || (also_dead && s->state == SESSION_DEAD);
}

bool session_nap(struct session *s, int cancel_fd)
{
    struct timespec until;
    struct pollfd cancel = {.fd = cancel_fd, .events = POLLIN};
    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += NAP_MS * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000L;
    until.tv_nsec %= 1000000000L;
    (void)pthread_cond_clockwait(&s->changed, &s->lock, CLOCK_MONOTONIC, &until);
    return poll(&cancel, 1, 0) != 1;
}

int session_take(struct session *s, bool wait, bool also_dead, int cancel_fd, struct err *err)
{
    struct session_waiter waiter = {0};
    struct session_waiter *place = NULL; /* its entry in the queue, once it has one */
    uint64_t until_ms = clock_ms() + s->all->state->config.queue_wait_s * 1000;
    int r = 0;
    (void)pthread_mutex_lock(&s->lock);
    session_refresh(s);
    while ((r = why_not(s, also_dead, err)) == 0 &&
           !(is_free(s, also_dead) && is_turn(s, place))) {
        if (!wait)
            r = err_set(err, ERR_CONFLICT, EBUSY,
                "the session is busy; wait for it, interrupt it, or say \"wait\": true");
        else if (!place && (r = enter_queue(s, &waiter, err)) == 0)
            place = &waiter;
        if (r < 0)
            break;
        if (!session_nap(s, cancel_fd))
            r = -ECANCELED;
        else if (clock_ms() > until_ms || s->all->is_stopping)
            r = err_set(err, ERR_CONFLICT, EBUSY,
                "the session was busy for too long; try again later, or interrupt it");
        if (r < 0)
            break;
    }
    if (place)
        leave_queue(s, place);
    if (r == 0) {
        s->state = SESSION_BUSY;
        s->interrupts = 0;
        s->used_ms = clock_ms();
    }
    (void)pthread_cond_broadcast(&s->changed);
    (void)pthread_mutex_unlock(&s->lock);
    return r;
}

void session_touch(struct session *s)
{
    (void)pthread_mutex_lock(&s->lock);
    s->used_ms = clock_ms();
    (void)pthread_mutex_unlock(&s->lock);
}

void session_give(struct session *s)
{
    (void)pthread_mutex_lock(&s->lock);
    s->used_ms = clock_ms();
    s->state = s->has_interpreter ? SESSION_IDLE : SESSION_DEAD;
    if (s->is_deleted || s->is_over) {
        session_drop_box(s);
        s->state = SESSION_EXPIRED;
        s->reason = s->is_deleted ? "deleted" : "lifetime";
        (void)snprintf(s->message, sizeof(s->message), "%s",
            s->is_deleted ? "it was deleted" : "it reached its max_lifetime_s");
    }
    (void)pthread_cond_broadcast(&s->changed);
    (void)pthread_mutex_unlock(&s->lock);
}
