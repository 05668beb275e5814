/* SPDX-License-Identifier: Apache-2.0 */

/* See admit.h. One lock, and one list of waiters per key. Each return of a place admits the
 * next waiters: keys take turns, those within their share first. A run that does not fit is
 * passed over, but for a short time it holds back the later runs of its own key.
 * state/admit_share.c decides what fits. A waiter sleeps in poll() on an eventfd of its own and
 * on its client.
 *
 * When the queue is full, a key with a shorter list takes the place of the newest waiter of the
 * key with the longest list. So one caller cannot lock the others out. */

#include "state/admit_share.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

static struct bucket bucket_make(double size, double period_s)
{
    return (struct bucket){
        .level = size, .size = size, .per_ns = size / (period_s * 1e9), .at_ns = clock_ns()};
}

static void bucket_fill(struct bucket *b, uint64_t now)
{
    b->level += (double)(now - b->at_ns) * b->per_ns;
    if (b->level > b->size)
        b->level = b->size;
    b->at_ns = now;
}

/* Seconds until `need` is available; 0 when it is. */
static double bucket_wait_s(struct bucket *b, double need, uint64_t now)
{
    if (b->size <= 0)
        return 0;
    bucket_fill(b, now);
    return b->level >= need ? 0 : (need - b->level) / b->per_ns / 1e9;
}

struct admit *admit_new(const struct admit_options *options)
{
    struct admit *a = xcalloc(1, sizeof(*a));
    a->options = *options;
    a->tenant_count = options->keys->count + 1;
    a->tenants = xcalloc(a->tenant_count, sizeof(*a->tenants));
    a->mean_ms = 100;
    share_open(a);
    for (size_t i = 0; i < options->keys->count; i++) {
        const struct key *key = &options->keys->items[i];
        struct tenant *t = &a->tenants[i + 1];
        t->per_s = bucket_make(key->rate_per_s, 1);
        t->per_m = bucket_make(key->rate_per_m, 60);
        t->cpu_s = bucket_make((double)key->cpu_s_per_hour, 3600);
    }
    (void)pthread_mutex_init(&a->lock, NULL);
    return a;
}

struct box_need admit_largest_box(const struct admit *admit)
{
    const struct admit_need *most = &admit->tenants[0].most;
    return (struct box_need){
        .memory_mb = most->of[BUDGET_MEMORY], .processes = most->of[BUDGET_PROCESSES]};
}

void admit_free(struct admit *admit)
{
    if (!admit)
        return;
    (void)pthread_mutex_destroy(&admit->lock);
    free(admit->tenants);
    free(admit);
}

static void wake(struct admit_ticket *w, enum admit_place place)
{
    const uint64_t one = 1;
    w->place = place;
    ssize_t n = write(w->wake_fd, &one, sizeof(one));
    (void)n; /* writing 1 to an eventfd at 0 cannot fail */
}

/* Removes w from its list. */
static void unlink_waiter(struct admit *a, struct tenant *t, struct admit_ticket *w)
{
    struct admit_ticket *before = NULL;
    for (struct admit_ticket *at = t->first; at != w; at = at->next)
        before = at;
    if (before)
        before->next = w->next;
    else
        t->first = w->next;
    if (t->last == w)
        t->last = before;
    w->next = NULL;
    share_count_waiter(a, t, -1);
}

/* Adds w at the end of its list, or before all others. */
static void link_waiter(struct admit *a, struct tenant *t, struct admit_ticket *w, bool first)
{
    w->place = PLACE_WAITING;
    w->next = first ? t->first : NULL;
    if (first || !t->last)
        t->first = w;
    else
        t->last->next = w;
    if (!w->next)
        t->last = w;
    share_count_waiter(a, t, 1);
}

static void let_waiter_in(struct admit *a, struct tenant *t, struct admit_ticket *w)
{
    unlink_waiter(a, t, w);
    share_take(a, t, &w->need);
    wake(w, PLACE_TAKEN);
    a->turn = (size_t)(t - a->tenants) + 1;
}

/* Admits one waiter: in turn, the first that is within its share, else the first of the
 * others. */
static bool let_one_in(struct admit *a)
{
    struct shares now = shares_now(a, NULL);
    struct tenant *other = NULL;
    struct admit_ticket *others = NULL;
    for (size_t i = 0; i < a->tenant_count; i++) {
        struct tenant *t = &a->tenants[(a->turn + i) % a->tenant_count];
        struct admit_ticket *w = share_next(a, &now, t);
        if (w && share_is_within(a, &now, t, &w->need)) {
            let_waiter_in(a, t, w);
            return true;
        }
        if (w && !others) {
            other = t;
            others = w;
        }
    }
    if (others)
        let_waiter_in(a, other, others);
    return others;
}

static void let_in(struct admit *a)
{
    while (a->waiting && !a->closed && let_one_in(a))
        ;
}

/* Estimates the time until as many places became free as there are waiters ahead. */
static unsigned retry_s(const struct admit *a)
{
    double ms = a->mean_ms * (a->waiting + 1) / a->options.concurrency;
    return ms < 1000 ? 1 : ms > 300000 ? 300 : (unsigned)(ms / 1000 + 0.999);
}

/* Checks rate and CPU budget of the key. On success takes one run from the rate. */
static int check_quota(struct tenant *t, struct err *err)
{
    uint64_t now = clock_ns();
    const struct {
        struct bucket *bucket;
        double need;
        const char *text;
    } quotas[] = {
        {&t->per_s, 1, "this key may not start more runs per second"},
        {&t->per_m, 1, "this key may not start more runs per minute"},
        {&t->cpu_s, 1e-9, "this key has used up its CPU time for now"},
    };
    for (size_t i = 0; i < sizeof(quotas) / sizeof(quotas[0]); i++) {
        double wait_s = bucket_wait_s(quotas[i].bucket, quotas[i].need, now);
        if (wait_s > 0) {
            int r = err_set(err, ERR_BUSY, EAGAIN, "%s", quotas[i].text);
            return err_retry(err, r, wait_s > 3600 ? 3600 : (unsigned)wait_s + 1);
        }
    }
    t->per_s.level -= t->per_s.size > 0;
    t->per_m.level -= t->per_m.size > 0;
    return 0;
}

/* Makes room in a full queue for a key with a shorter list: evicts the newest waiter of the
 * longest list. */
static bool evict_for(struct admit *a, const struct tenant *t)
{
    struct tenant *longest = NULL;
    for (size_t i = 0; i < a->tenant_count; i++) {
        if (!longest || a->tenants[i].waiting > longest->waiting)
            longest = &a->tenants[i];
    }
    if (!longest || longest == t || longest->waiting <= t->waiting + 1)
        return false;
    struct admit_ticket *newest = longest->last;
    if (newest->is_back)
        return false;
    unlink_waiter(a, longest, newest);
    wake(newest, PLACE_EVICTED);
    return true;
}

static int refuse(struct admit *a, struct err *err)
{
    a->refused++;
    unsigned seconds = retry_s(a);
    int r = err_set(err, ERR_BUSY, EAGAIN,
        "the server is busy: %u running, %u waiting; try again in %u s",
        (unsigned)a->held.of[BUDGET_PLACES], a->waiting, seconds);
    return err_retry(err, r, seconds);
}

static int refuse_for_ever(
    const struct tenant *t, const struct admit_need *need, enum admit_budget b, struct err *err)
{
    return err_field(err, share_field(b),
        "this needs %llu %s, and one key may have at most %llu here",
        (unsigned long long)need->of[b], share_unit(b), (unsigned long long)t->most.of[b]);
}

static int check_open(const struct admit *a, struct err *err)
{
    return a->closed ? err_set(err, ERR_UNAVAILABLE, ESHUTDOWN, "the server is stopping") : 0;
}

/* Queues w, or sets err. Call with the lock held. */
static int enqueue(struct admit *a, struct tenant *t, struct admit_ticket *w, struct err *err)
{
    const struct key *key = w->owner < 0 ? NULL : &a->options.keys->items[w->owner];
    if (key && key->concurrency && t->waiting >= key->concurrency) {
        a->refused++;
        unsigned seconds = retry_s(a);
        int r = err_set(err, ERR_BUSY, EAGAIN,
            "this key is at its limit: %u running, %u waiting; try again in %u s",
            (unsigned)t->held.of[BUDGET_PLACES], t->waiting, seconds);
        return err_retry(err, r, seconds);
    }
    if (a->waiting >= a->options.queue && !(a->options.queue && evict_for(a, t)))
        return refuse(a, err);
    w->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (w->wake_fd < 0)
        return err_set(err, ERR_UNAVAILABLE, errno, "cannot wait: %s", strerror(errno));
    link_waiter(a, t, w, false);
    return 0;
}

/* Sleeps until w is admitted or turned away (0), the client leaves (-ECANCELED), also_fd is
 * readable (-EINTR) or the time is up (-ETIMEDOUT). */
static int sleep_for_place(const struct admit_ticket *w, int cancel_fd, uint64_t deadline_ms)
{
    struct pollfd fds[] = {
        {w->wake_fd, POLLIN, 0}, {cancel_fd, POLLIN, 0}, {w->also_fd, POLLIN, 0}};
    int n;
    do {
        uint64_t now = clock_ms();
        n = poll(fds, 3, now < deadline_ms ? (int)(deadline_ms - now) : 0);
    } while (n < 0 && errno == EINTR);
    if (fds[0].revents)
        return 0;
    return fds[1].revents ? -ECANCELED : fds[2].revents ? -EINTR : -ETIMEDOUT;
}

/* Takes a place if that is possible at once. Waiters of the same key come first. */
static bool take_at_once(struct admit *a, struct tenant *t, struct admit_ticket *w)
{
    if (t->waiting)
        return false;
    struct shares now = shares_now(a, t);
    if (share_lacks(a, &now, t, &w->need) != BUDGETS)
        return false;
    share_take(a, t, &w->need);
    w->place = PLACE_TAKEN;
    return true;
}

static void ticket_init(struct admit_ticket *w, int owner, const struct admit_need *need)
{
    *w = (struct admit_ticket){
        .owner = owner, .need = *need, .began_ns = clock_ns(), .wake_fd = -1, .also_fd = -1};
}

int admit_begin(struct admit *admit, int owner, const struct admit_need *need,
    struct admit_ticket *ret, struct err *err)
{
    struct tenant *t = &admit->tenants[owner + 1];
    enum admit_budget forbidden = share_forbids(t, need);
    ticket_init(ret, owner, need);
    if (forbidden != BUDGETS)
        return refuse_for_ever(t, need, forbidden, err);
    (void)pthread_mutex_lock(&admit->lock);
    int r = check_open(admit, err);
    if (r == 0)
        r = check_quota(t, err);
    if (r == 0 && !take_at_once(admit, t, ret) && (r = enqueue(admit, t, ret, err)) == 0)
        let_in(admit); /* earlier waiters of its key may be passed over */
    (void)pthread_mutex_unlock(&admit->lock);
    return r;
}

bool admit_try(
    struct admit *admit, int owner, const struct admit_need *need, struct admit_ticket *ret)
{
    ticket_init(ret, owner, need);
    ret->enter_ns = ret->began_ns;
    (void)pthread_mutex_lock(&admit->lock);
    bool is_free = !admit->closed && take_at_once(admit, &admit->tenants[owner + 1], ret);
    (void)pthread_mutex_unlock(&admit->lock);
    return is_free;
}

bool admit_is_wanted(struct admit *admit, const struct admit_ticket *ticket)
{
    const struct tenant *t = &admit->tenants[ticket->owner + 1];
    (void)pthread_mutex_lock(&admit->lock);
    bool is_wanted = admit->closed || t->waiting ||
                     (admit->waiting && share_is_above(admit, t, &ticket->need));
    (void)pthread_mutex_unlock(&admit->lock);
    return is_wanted;
}

/* Returns the outcome of a ticket. Call with the lock held. A ticket that still waits gives up,
 * unless its caller was only interrupted (-EINTR). */
static int conclude(struct admit *a, struct admit_ticket *w, int slept, struct err *err)
{
    switch (w->place) {
    case PLACE_TAKEN:
        return 0;
    case PLACE_CLOSED:
        return check_open(a, err);
    case PLACE_WAITING:
        if (slept == -EINTR)
            return slept;
        unlink_waiter(a, &a->tenants[w->owner + 1], w);
        let_in(a); /* the run may have held back others */
        w->place = PLACE_NONE;
        return slept == -ECANCELED ? slept : refuse(a, err);
    default:
        return refuse(a, err);
    }
}

int admit_wait(struct admit *admit, struct admit_ticket *ticket, int cancel_fd,
    uint32_t wait_ms, struct err *err)
{
    int r = 0;
    if (ticket->wake_fd >= 0) {
        uint32_t most_ms = wait_ms ? wait_ms : admit->options.wait_ms;
        int slept = sleep_for_place(ticket, cancel_fd, ticket->began_ns / 1000000 + most_ms);
        (void)pthread_mutex_lock(&admit->lock);
        r = conclude(admit, ticket, slept, err);
        if (r != -EINTR)
            close_fd(&ticket->wake_fd);
        (void)pthread_mutex_unlock(&admit->lock);
    }
    ticket->enter_ns = clock_ns();
    ticket->queue_ms = (double)(ticket->enter_ns - ticket->began_ns) / 1e6;
    return r;
}

void admit_drop(struct admit *admit, struct admit_ticket *ticket)
{
    struct tenant *t = &admit->tenants[ticket->owner + 1];
    (void)pthread_mutex_lock(&admit->lock);
    if (ticket->place == PLACE_TAKEN)
        share_return(admit, t, &ticket->need);
    else if (ticket->place == PLACE_WAITING)
        unlink_waiter(admit, t, ticket);
    ticket->place = PLACE_NONE;
    close_fd(&ticket->wake_fd);
    let_in(admit);
    (void)pthread_mutex_unlock(&admit->lock);
}

void admit_resume(struct admit *admit, struct admit_ticket *ticket)
{
    struct tenant *t = &admit->tenants[ticket->owner + 1];
    ticket->is_back = true;
    ticket->unfit_ms = 0;
    ticket->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    (void)pthread_mutex_lock(&admit->lock);
    if (admit->closed || ticket->wake_fd < 0) { /* this ticket cannot be refused, so it is
                                                 * admitted */
        share_take(admit, t, &ticket->need);
        ticket->place = PLACE_TAKEN;
        close_fd(&ticket->wake_fd);
    } else {
        link_waiter(admit, t, ticket, true);
        let_in(admit);
    }
    (void)pthread_mutex_unlock(&admit->lock);
}

static int refuse_session(struct admit *a, const struct tenant *t,
    const struct admit_need *need, enum admit_budget b, struct err *err)
{
    bool is_own = t->held.of[b] + need->of[b] > t->most.of[b];
    a->refused++;
    /* The message must not show what other keys use. */
    int r = is_own
                ? err_set(err, ERR_BUSY, EAGAIN,
                      "no room for another session: this key has %llu of at most %llu %s, and "
                      "this needs %llu; delete one that is not needed, or ask for less",
                      (unsigned long long)t->held.of[b], (unsigned long long)t->most.of[b],
                      share_unit(b), (unsigned long long)need->of[b])
                : err_set(err, ERR_BUSY, EAGAIN,
                      "no room for another session: the server has at most %llu %s, and too "
                      "few are free; try again later, or ask for less",
                      (unsigned long long)a->total.of[b], share_unit(b));
    return err_retry(err, r, retry_s(a));
}

int admit_reserve(
    struct admit *admit, int owner, const struct admit_need *need, struct err *err)
{
    struct tenant *t = &admit->tenants[owner + 1];
    enum admit_budget lacks = share_forbids(t, need);
    if (lacks != BUDGETS && share_field(lacks))
        return refuse_for_ever(t, need, lacks, err);
    (void)pthread_mutex_lock(&admit->lock);
    struct shares now = shares_now(admit, t);
    int r = check_open(admit, err);
    if (r == 0 && (lacks = share_lacks(admit, &now, t, need)) != BUDGETS)
        r = refuse_session(admit, t, need, lacks, err);
    if (r == 0) {
        share_take(admit, t, need);
        let_in(admit); /* a run that cannot fit any more must not hold back others */
    }
    (void)pthread_mutex_unlock(&admit->lock);
    return r;
}

void admit_give_back(struct admit *admit, int owner, const struct admit_need *need)
{
    (void)pthread_mutex_lock(&admit->lock);
    share_return(admit, &admit->tenants[owner + 1], need);
    let_in(admit);
    (void)pthread_mutex_unlock(&admit->lock);
}

void admit_tick(struct admit *admit)
{
    (void)pthread_mutex_lock(&admit->lock);
    let_in(admit);
    (void)pthread_mutex_unlock(&admit->lock);
}

int admit_check(struct admit *admit, int owner, struct err *err)
{
    (void)pthread_mutex_lock(&admit->lock);
    int r = check_open(admit, err);
    if (r == 0)
        r = check_quota(&admit->tenants[owner + 1], err);
    (void)pthread_mutex_unlock(&admit->lock);
    return r;
}

static void charge(struct tenant *t, double cpu_ms)
{
    if (t->cpu_s.size > 0) {
        bucket_fill(&t->cpu_s, clock_ns());
        t->cpu_s.level -= cpu_ms / 1000;
    }
}

void admit_charge(struct admit *admit, int owner, double cpu_ms)
{
    (void)pthread_mutex_lock(&admit->lock);
    charge(&admit->tenants[owner + 1], cpu_ms);
    (void)pthread_mutex_unlock(&admit->lock);
}

void admit_leave(struct admit *admit, const struct admit_ticket *ticket, double cpu_ms)
{
    struct tenant *t = &admit->tenants[ticket->owner + 1];
    double held_ms = (double)(clock_ns() - ticket->enter_ns) / 1e6;
    (void)pthread_mutex_lock(&admit->lock);
    share_return(admit, t, &ticket->need);
    admit->mean_ms += (held_ms - admit->mean_ms) / 16;
    charge(t, cpu_ms);
    let_in(admit);
    (void)pthread_mutex_unlock(&admit->lock);
}

void admit_close(struct admit *admit)
{
    (void)pthread_mutex_lock(&admit->lock);
    admit->closed = true;
    for (size_t i = 0; i < admit->tenant_count; i++) {
        struct tenant *t = &admit->tenants[i];
        while (t->first) {
            struct admit_ticket *w = t->first;
            unlink_waiter(admit, t, w);
            wake(w, PLACE_CLOSED);
        }
    }
    (void)pthread_mutex_unlock(&admit->lock);
}

void admit_get_state(struct admit *admit, struct admit_state *ret)
{
    (void)pthread_mutex_lock(&admit->lock);
    const struct admit_need *held = &admit->held;
    const struct admit_need *total = &admit->total;
    *ret = (struct admit_state){.running = (uint32_t)held->of[BUDGET_PLACES],
        .running_max = admit->options.concurrency * (admit->is_shared ? 2 : 1),
        .waiting = admit->waiting,
        .concurrency = admit->options.concurrency,
        .queue = admit->options.queue,
        .memory_promised_mb = held->of[BUDGET_MEMORY],
        .memory_mb = total->of[BUDGET_MEMORY],
        .processes_promised = held->of[BUDGET_PROCESSES],
        .processes = total->of[BUDGET_PROCESSES],
        .refused = admit->refused};
    (void)pthread_mutex_unlock(&admit->lock);
}

void admit_get_use(struct admit *admit, int owner, struct admit_use *ret)
{
    struct tenant *t = &admit->tenants[owner + 1];
    (void)pthread_mutex_lock(&admit->lock);
    if (t->cpu_s.size > 0)
        bucket_fill(&t->cpu_s, clock_ns());
    *ret = (struct admit_use){.running = (uint32_t)t->held.of[BUDGET_PLACES],
        .waiting = t->waiting,
        .sessions = (uint32_t)t->held.of[BUDGET_SESSIONS],
        .memory_mb = t->held.of[BUDGET_MEMORY],
        .processes = t->held.of[BUDGET_PROCESSES],
        .has_cpu_budget = t->cpu_s.size > 0,
        .cpu_s_left = t->cpu_s.level};
    (void)pthread_mutex_unlock(&admit->lock);
}
