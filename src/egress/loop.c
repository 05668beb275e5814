/* SPDX-License-Identifier: Apache-2.0 */

/* The loop. Events only mark what has become possible and queue it with its box. Then the boxes
 * that have something to do are served in turn, each at most TURN_BYTES, so that a box with a
 * thousand busy connections takes no more than one with a single one.
 *
 * Whatever ends during a turn is freed after it: an event of the same turn may still point at
 * it. */

#include "egress/egress.h"

#include "base/clock.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

enum { EVENTS = 512 };

int loop_init(struct egress *e)
{
    TAILQ_INIT(&e->boxes);
    TAILQ_INIT(&e->ready_boxes);
    TAILQ_INIT(&e->starved_boxes);
    TAILQ_INIT(&e->dead_boxes);
    TAILQ_INIT(&e->dead_conns);
    TAILQ_INIT(&e->dead_flows);
    e->now_ms = e->swept_ms = clock_ms();
    e->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    return e->epoll_fd < 0 ? -errno : 0;
}

int loop_add(struct egress *e, struct source *s)
{
    uint32_t events = s->box ? EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET : EPOLLIN;
    struct epoll_event event = {.events = events, .data.ptr = s};
    return epoll_ctl(e->epoll_fd, EPOLL_CTL_ADD, s->fd, &event) < 0 ? -errno : 0;
}

static void queue_box(struct box *b)
{
    struct egress *e = b->egress;
    if (b->is_ready || b->is_dead || b->is_served)
        return; /* serve_box() looks itself at what is left */
    if (b->is_starved)
        TAILQ_REMOVE(&e->starved_boxes, b, ready_entry);
    b->is_starved = false;
    b->is_ready = true;
    TAILQ_INSERT_TAIL(&e->ready_boxes, b, ready_entry);
}

static void starve_box(struct box *b)
{
    struct egress *e = b->egress;
    if (TAILQ_EMPTY(&e->starved_boxes))
        e->wake_ms = e->now_ms + STARVED_MS;
    b->is_starved = true;
    TAILQ_INSERT_TAIL(&e->starved_boxes, b, ready_entry);
}

void loop_queue(struct source *s)
{
    if (s->is_queued)
        return;
    s->is_queued = true;
    s->box->ready_count++;
    TAILQ_INSERT_TAIL(&s->box->ready, s, entry);
    queue_box(s->box);
}

void loop_forget(struct box *b)
{
    struct egress *e = b->egress;
    if (b->is_ready)
        TAILQ_REMOVE(&e->ready_boxes, b, ready_entry);
    if (b->is_starved)
        TAILQ_REMOVE(&e->starved_boxes, b, ready_entry);
    b->is_ready = b->is_starved = false;
}

static void unqueue(struct source *s)
{
    if (!s->is_queued)
        return;
    s->is_queued = false;
    s->box->ready_count--;
    TAILQ_REMOVE(&s->box->ready, s, entry);
}

void loop_close(struct egress *e, struct source *s)
{
    unqueue(s);
    if (s->fd < 0)
        return;
    /* The spawner has duplicates of the sockets of a kit, so closing does not remove them. */
    (void)epoll_ctl(e->epoll_fd, EPOLL_CTL_DEL, s->fd, NULL);
    (void)close(s->fd);
    s->fd = -EBADF;
}

static void mark(struct source *s, uint32_t events)
{
    if (s->fd < 0)
        return;
    s->is_readable |= (events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0;
    s->is_writable |= (events & (EPOLLOUT | EPOLLHUP | EPOLLERR)) != 0;
    s->is_hung_up |= (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0;
    if (s->box)
        loop_queue(s);
    else
        (void)s->serve(s);
}

/* Each source that is queued now is served once at most. */
static void serve_box(struct box *b)
{
    bool is_starved = true;
    unsigned left = b->ready_count;
    b->turn_left = TURN_BYTES;
    b->is_served = true;
    for (; left && b->turn_left > 0 && !TAILQ_EMPTY(&b->ready); left--) {
        struct source *s = TAILQ_FIRST(&b->ready);
        unqueue(s);
        enum served served = s->serve(s);
        if (served != SERVED_ALL && s->fd >= 0)
            loop_queue(s);
        is_starved = is_starved && served == SERVED_STARVED;
    }
    b->is_served = false;
    box_finish_if_empty(b);
    if (b->is_dead || TAILQ_EMPTY(&b->ready))
        return;
    if (is_starved && left == 0)
        starve_box(b);
    else
        queue_box(b);
}

/* Serves each box that is ready now once. A box with more to do goes to the end of the list. */
static void serve_boxes(struct egress *e)
{
    const struct box *last = TAILQ_LAST(&e->ready_boxes, box_list);
    for (struct box *b; (b = TAILQ_FIRST(&e->ready_boxes));) {
        loop_forget(b);
        serve_box(b);
        if (b == last)
            break;
    }
}

static void wake_starved(struct egress *e)
{
    if (TAILQ_EMPTY(&e->starved_boxes) || e->now_ms < e->wake_ms)
        return;
    for (struct box *b; (b = TAILQ_FIRST(&e->starved_boxes));)
        queue_box(b);
}

static void sweep(struct egress *e)
{
    if (e->now_ms - e->swept_ms < SWEEP_MS)
        return;
    e->swept_ms = e->now_ms;
    for (struct box *b = TAILQ_FIRST(&e->boxes), *next; b; b = next) {
        next = TAILQ_NEXT(b, entry);
        box_sweep(b);
    }
}

static void free_dead(struct egress *e)
{
    for (struct conn *c; (c = TAILQ_FIRST(&e->dead_conns));) {
        TAILQ_REMOVE(&e->dead_conns, c, entry);
        free(c->server_name);
        free(c);
    }
    for (struct flow *f; (f = TAILQ_FIRST(&e->dead_flows));) {
        TAILQ_REMOVE(&e->dead_flows, f, entry);
        free(f->held);
        free(f);
    }
    for (struct box *b; (b = TAILQ_FIRST(&e->dead_boxes));) {
        TAILQ_REMOVE(&e->dead_boxes, b, entry);
        box_free(b);
    }
}

static int sooner(int a, int b)
{
    return a < 0 || (b >= 0 && b < a) ? b : a;
}

static int wait_ms(struct egress *e)
{
    if (!TAILQ_EMPTY(&e->ready_boxes))
        return 0;
    int ms = resolver_timeout_ms(e->resolver);
    if (!TAILQ_EMPTY(&e->boxes))
        ms = sooner(ms, SWEEP_MS);
    if (!TAILQ_EMPTY(&e->starved_boxes))
        ms = sooner(ms, e->wake_ms > e->now_ms ? (int)(e->wake_ms - e->now_ms) : 0);
    return ms;
}

void loop_run(struct egress *e)
{
    struct epoll_event events[EVENTS];
    for (;;) {
        int n = epoll_wait(e->epoll_fd, events, EVENTS, wait_ms(e));
        e->now_ms = clock_ms();
        for (int i = 0; i < n; i++)
            mark(events[i].data.ptr, events[i].events);
        if (resolver_timeout_ms(e->resolver) == 0)
            resolver_process(e->resolver);
        wake_starved(e);
        serve_boxes(e);
        sweep(e);
        free_dead(e);
    }
}
