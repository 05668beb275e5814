/* SPDX-License-Identifier: Apache-2.0 */

/* See history.h. Readers of events. */

#include "state/history/internal.h"

#include "base/clock.h"

#include <errno.h>
#include <time.h>

void history_read_begin(struct history_run *run)
{
    (void)pthread_mutex_lock(&run->history->lock);
    run->readers++;
    (void)pthread_mutex_unlock(&run->history->lock);
}

void history_read_end(struct history_run *run)
{
    (void)pthread_mutex_lock(&run->history->lock);
    if (--run->readers == 0)
        run->unread_since_ms = clock_ms();
    (void)pthread_mutex_unlock(&run->history->lock);
}

static bool has_news(const struct history_run *run, uint64_t after_id)
{
    return run->is_over || run->events.last_id > after_id;
}

/* Copies the next piece of the event `end`. The answer can be very large, so it is not copied
 * into an event but read in pieces. */
static int copy_end(const struct history_run *run, uint64_t end_id,
    struct history_cursor *cursor, struct buf *to)
{
    const struct answer *answer = run->answer;
    char tail[EVENT_TAIL_MAX];
    uint64_t t_ms = run->wall_ms > 0 ? (uint64_t)run->wall_ms : 0;
    size_t len = run_events_time(answer->text, answer->len, t_ms, tail);
    size_t left = len - cursor->end_at;
    size_t n = left < EVENTS_READ_MAX ? left : EVENTS_READ_MAX;
    if (cursor->end_at == 0 &&
        buf_printf(to, "id: %llu\nevent: end\ndata: ", (unsigned long long)end_id) < 0)
        return -ENOMEM;
    if (buf_append(to, answer->text + cursor->end_at, n) < 0)
        return -ENOMEM;
    cursor->end_at += n;
    if (n < left)
        return 1;
    cursor->after_id = end_id;
    return buf_printf(to, "%s\n\n", tail) < 0 ? -ENOMEM : 0;
}

/* Copies events after the cursor. Call with the lock held. */
static int copy_events(struct history_run *run, struct history_cursor *cursor, struct buf *to)
{
    int r = run_events_copy(&run->events, &cursor->after_id, to);
    if (r != 0)
        return r;
    if (!run->is_over)
        return 1;
    uint64_t end_id = run->from_store ? cursor->after_id + 1 : run->events.last_id;
    return cursor->after_id < end_id ? copy_end(run, end_id, cursor, to) : 0;
}

int history_read(
    struct history_run *run, struct history_cursor *cursor, unsigned wait_ms, struct buf *to)
{
    struct history *h = run->history;
    struct timespec until;
    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += wait_ms / 1000;
    until.tv_nsec += (long)(wait_ms % 1000) * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    int r = 0;
    (void)pthread_mutex_lock(&h->lock);
    while (!has_news(run, cursor->after_id) && !h->closed && r != ETIMEDOUT)
        r = pthread_cond_timedwait(&run->changed, &h->lock, &until);
    if (run->is_shed || (run->is_over && !run->answer))
        r = -ESTALE;
    else if (has_news(run, cursor->after_id))
        r = copy_events(run, cursor, to);
    else
        r = h->closed ? -ESHUTDOWN : -ETIMEDOUT;
    (void)pthread_mutex_unlock(&h->lock);
    return r;
}

bool history_is_read(struct history_run *run, uint64_t after_id)
{
    (void)pthread_mutex_lock(&run->history->lock);
    bool all = run->is_over && !run->from_store && after_id >= run->events.last_id;
    (void)pthread_mutex_unlock(&run->history->lock);
    return all;
}
