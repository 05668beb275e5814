/* SPDX-License-Identifier: Apache-2.0 */

/* An exec needs an admission place, as a run does. It takes the session first and the place
 * second. So no holder of a place ever waits for a session, and there is no deadlock.
 *
 * An exec that waits for a tool's answer, or for packages, gives its place back after a moment:
 * the answer may take minutes, and the tool, or the build of the packages, may need a place.
 * The interpreter gets the answer when the exec has a place again. */

#include "session/exec/internal.h"

#include "base/clock.h"
#include "state/state.h"

#include <errno.h>
#include <poll.h>
#include <unistd.h>

enum { AWAY_MS = 1000 }; /* an exec that waits this long for a tool gives its place back */

int place_look(struct session *s, struct err *err)
{
    uint64_t count;
    ssize_t n = read(s->wake_fd, &count, sizeof(count));
    (void)n;
    if (session_must_end(s))
        return err_set(
            err, ERR_CONFLICT, ECANCELED, "the session was ended before the code began");
    (void)pthread_mutex_lock(&s->lock);
    unsigned interrupts = s->interrupts;
    (void)pthread_mutex_unlock(&s->lock);
    return interrupts
               ? err_set(err, ERR_CONFLICT, EINTR, "the code was interrupted before it began")
               : 0;
}

int place_take(struct session *s, int cancel_fd, struct err *err)
{
    struct state *state = s->all->state;
    const struct admit_need need = admit_need_exec();
    s->place = (struct session_place){.since_ms = clock_ms()};
    int r = session_admit(state, s->owner_index, &need, &s->place.ticket, err);
    if (r < 0)
        return r;
    s->place.ticket.also_fd = s->wake_fd;
    while ((r = admit_wait(state->admit, &s->place.ticket, cancel_fd, 0, err)) == -EINTR) {
        if ((r = place_look(s, err)) < 0)
            break;
    }
    if (r < 0)
        place_leave(s);
    return r;
}

void place_leave(struct session *s)
{
    admit_drop(s->all->state->admit, &s->place.ticket);
}

int place_fd(const struct session *s)
{
    return s->place.state == EXEC_RETURNING ? s->place.ticket.wake_fd : -1;
}

bool place_is_returning(const struct session *s)
{
    return s->place.state == EXEC_RETURNING;
}

static void pass(struct session *s, uint64_t now)
{
    (void)pthread_mutex_lock(&s->lock);
    (void)tools_pass(s);
    (void)pthread_mutex_unlock(&s->lock);
    (void)install_pass(s);
    s->place.since_ms = now;
}

/* True when the exec has its place again, or the server is stopping and no place will come. */
static bool is_back(struct session *s)
{
    struct admit_ticket *ticket = &s->place.ticket;
    struct pollfd ready = {.fd = ticket->wake_fd, .events = POLLIN};
    struct err ignored = {0};
    if (ticket->wake_fd >= 0 && poll(&ready, 1, 0) != 1)
        return false;
    (void)admit_wait(s->all->state->admit, ticket, -1, 0, &ignored);
    return true;
}

/* The exec has its place. Sends tool answers; gives the place back when a tool takes long. */
static uint64_t tend_inside(struct session *s, uint64_t now, bool is_waiting, bool has_news)
{
    struct session_place *p = &s->place;
    if (has_news)
        pass(s, now);
    if (!is_waiting || p->calls != s->tools.made) {
        p->calls = s->tools.made;
        p->since_ms = now;
    }
    if (now - p->since_ms < AWAY_MS && !preview_is_open(s)) /* the preview needs a place */
        return is_waiting ? p->since_ms + AWAY_MS : UINT64_MAX;
    place_leave(s);
    p->state = EXEC_AWAY;
    return UINT64_MAX;
}

uint64_t place_tend(struct session *s, bool is_stopping, uint64_t *deadline_ms)
{
    struct session_place *p = &s->place;
    uint64_t now = clock_ms();
    if (!s->tools.offered && !install_is_open(s) && p->state == EXEC_INSIDE)
        return UINT64_MAX;
    (void)pthread_mutex_lock(&s->lock);
    uint64_t next_ms = tools_deadline_ms(s);
    bool has_news = tools_have_news(s) || install_has_news(s);
    (void)pthread_mutex_unlock(&s->lock);
    if (p->state == EXEC_AWAY && has_news) {
        admit_resume(s->all->state->admit, &p->ticket);
        p->state = EXEC_RETURNING;
        p->since_ms = now;
    }
    if (p->state == EXEC_RETURNING && is_back(s)) {
        p->state = EXEC_INSIDE;
        *deadline_ms += now - p->since_ms; /* the code is not charged for this wait */
    }
    if (p->state == EXEC_RETURNING && is_stopping && has_news)
        pass(s, now);
    if (p->state == EXEC_RETURNING)
        return UINT64_MAX;
    if (p->state == EXEC_INSIDE) {
        bool is_waiting = next_ms != UINT64_MAX || install_is_open(s);
        uint64_t away_ms = tend_inside(s, now, is_waiting, has_news);
        next_ms = has_news ? now : next_ms < away_ms ? next_ms : away_ms;
    }
    return next_ms;
}
