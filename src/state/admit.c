/* SPDX-License-Identifier: Apache-2.0 */

/* See admit.h. One lock, one list of waiters per key. Whoever leaves lets in the next ones:
 * keys take turns, and the head of a key's list that does not fit into memory yet keeps its
 * turn, so that a large run is not starved by small ones. A waiter sleeps in poll() on an
 * eventfd of its own and on its client.
 *
 * When the queue is full, a key with less than its share of it takes the place of the newest
 * waiter of the key with the longest list: one caller cannot lock the others out. */

#include "state/admit.h"

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

/* A bucket that fills up with time. `level` may fall below zero for budgets that are charged
 * afterwards. */
struct bucket {
    double level;
    double size;
    double per_ns;
    uint64_t at_ns;
};

struct tenant {
    struct admit_ticket *first;
    struct admit_ticket *last;
    uint32_t waiting;
    uint32_t running;
    uint32_t concurrency;
    struct bucket per_s, per_m, cpu_s; /* size 0: no limit */
};

struct admit {
    struct admit_options options;
    pthread_mutex_t lock;
    struct tenant *tenants; /* [0] is for callers without a key */
    size_t tenant_count;
    size_t turn; /* whose turn it is */
    uint32_t running;
    uint32_t waiting;
    uint64_t promised_mb;
    uint64_t reserved_mb; /* of them, for sessions */
    uint64_t refused;
    double mean_ms; /* how long a run holds its place, lately */
    bool closed;
};

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

/* Seconds until `need` is there; 0 when it is. */
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
    for (size_t i = 0; i < options->keys->count; i++) {
        const struct key *key = &options->keys->items[i];
        struct tenant *t = &a->tenants[i + 1];
        t->concurrency = key->concurrency;
        t->per_s = bucket_make(key->rate_per_s, 1);
        t->per_m = bucket_make(key->rate_per_m, 60);
        t->cpu_s = bucket_make((double)key->cpu_s_per_hour, 3600);
    }
    (void)pthread_mutex_init(&a->lock, NULL);
    return a;
}

void admit_free(struct admit *admit)
{
    if (!admit)
        return;
    (void)pthread_mutex_destroy(&admit->lock);
    free(admit->tenants);
    free(admit);
}

static bool fits(const struct admit *a, const struct tenant *t, uint64_t memory_mb)
{
    return a->running < a->options.concurrency &&
           (t->concurrency == 0 || t->running < t->concurrency) &&
           a->promised_mb + memory_mb <= a->options.memory_mb;
}

static void take_place(struct admit *a, struct tenant *t, uint64_t memory_mb)
{
    a->running++;
    t->running++;
    a->promised_mb += memory_mb;
}

static void wake(struct admit_ticket *w, enum admit_place place)
{
    const uint64_t one = 1;
    w->place = place;
    ssize_t n = write(w->wake_fd, &one, sizeof(one));
    (void)n; /* an eventfd that was never written to takes a 1 */
}

/* Takes w out of its list. */
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
    t->waiting--;
    a->waiting--;
}

/* Lets in as many as fit, a key at a time. */
static void let_in(struct admit *a)
{
    size_t skipped = 0;
    while (a->waiting && skipped < a->tenant_count) {
        struct tenant *t = &a->tenants[a->turn % a->tenant_count];
        struct admit_ticket *w = t->first;
        bool at_cap = t->concurrency && t->running >= t->concurrency;
        if (!w || at_cap) {
            a->turn++;
            skipped++;
            continue;
        }
        if (!fits(a, t, w->memory_mb))
            return;
        unlink_waiter(a, t, w);
        take_place(a, t, w->memory_mb);
        wake(w, PLACE_TAKEN);
        a->turn++;
        skipped = 0;
    }
}

/* An honest guess: how long until as many places became free as there are waiters ahead. */
static unsigned retry_s(const struct admit *a)
{
    double ms = a->mean_ms * (a->waiting + 1) / a->options.concurrency;
    return ms < 1000 ? 1 : ms > 300000 ? 300 : (unsigned)(ms / 1000 + 0.999);
}

/* Rate and CPU budget of the key. Takes one run from the rate when all is well. */
static int check_quota(struct tenant *t, unsigned *ret_retry_s, struct err *err)
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
            *ret_retry_s = wait_s > 3600 ? 3600 : (unsigned)wait_s + 1;
            return err_set(err, ERR_BUSY, EAGAIN, "%s", quotas[i].text);
        }
    }
    t->per_s.level -= t->per_s.size > 0;
    t->per_m.level -= t->per_m.size > 0;
    return 0;
}

/* Makes room in a full queue for a key that has less than its share of it. */
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
    unlink_waiter(a, longest, newest);
    wake(newest, PLACE_EVICTED);
    return true;
}

static int refuse(struct admit *a, unsigned *ret_retry_s, struct err *err)
{
    a->refused++;
    *ret_retry_s = retry_s(a);
    return err_set(err, ERR_BUSY, EAGAIN, "%u runs are going on and %u wait; try again later",
        a->running, a->waiting);
}

/* Queues w or says why not. Called and left with the lock held. */
static int enqueue(struct admit *a, struct tenant *t, struct admit_ticket *w,
    unsigned *ret_retry_s, struct err *err)
{
    if (t->concurrency && t->waiting >= t->concurrency) {
        int r = refuse(a, ret_retry_s, err);
        (void)err_set(err, ERR_BUSY, EAGAIN,
            "this key has %u runs going on and as many waiting, which is its limit",
            t->running);
        return r;
    }
    if (a->waiting >= a->options.queue && !(a->options.queue && evict_for(a, t)))
        return refuse(a, ret_retry_s, err);
    w->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (w->wake_fd < 0)
        return err_set(err, ERR_UNAVAILABLE, errno, "cannot wait: %s", strerror(errno));
    w->place = PLACE_WAITING;
    if (t->last)
        t->last->next = w;
    else
        t->first = w;
    t->last = w;
    t->waiting++;
    a->waiting++;
    return 0;
}

/* Sleeps until w is let in or sent away, the client leaves or the time is up. */
static bool sleep_for_place(const struct admit_ticket *w, int cancel_fd, uint64_t deadline_ms)
{
    for (;;) {
        uint64_t now = clock_ms();
        struct pollfd fds[] = {{w->wake_fd, POLLIN, 0}, {cancel_fd, POLLIN, 0}};
        int left = now < deadline_ms ? (int)(deadline_ms - now) : 0;
        int n = poll(fds, 2, left);
        if (n < 0 && errno == EINTR)
            continue;
        return fds[1].revents && !fds[0].revents;
    }
}

int admit_begin(struct admit *admit, int owner, uint64_t memory_mb, struct admit_ticket *ret,
    unsigned *ret_retry_s, struct err *err)
{
    struct tenant *t = &admit->tenants[owner + 1];
    *ret = (struct admit_ticket){
        .owner = owner, .memory_mb = memory_mb, .began_ns = clock_ns(), .wake_fd = -1};
    *ret_retry_s = 1;
    (void)pthread_mutex_lock(&admit->lock);
    int r = admit->closed ? err_set(err, ERR_UNAVAILABLE, ESHUTDOWN, "the server is stopping")
                          : check_quota(t, ret_retry_s, err);
    if (r == 0 && admit->waiting == 0 && fits(admit, t, memory_mb)) {
        take_place(admit, t, memory_mb);
        ret->place = PLACE_TAKEN;
    } else if (r == 0 && (r = enqueue(admit, t, ret, ret_retry_s, err)) == 0) {
        /* Others may wait for their key's own limit only; then this one need not. */
        let_in(admit);
    }
    (void)pthread_mutex_unlock(&admit->lock);
    return r;
}

bool admit_try(struct admit *admit, int owner, uint64_t memory_mb, struct admit_ticket *ret)
{
    struct tenant *t = &admit->tenants[owner + 1];
    *ret = (struct admit_ticket){.owner = owner, .memory_mb = memory_mb, .wake_fd = -1};
    ret->began_ns = ret->enter_ns = clock_ns();
    (void)pthread_mutex_lock(&admit->lock);
    bool is_free = !admit->closed && admit->waiting == 0 && fits(admit, t, memory_mb);
    if (is_free)
        take_place(admit, t, memory_mb);
    (void)pthread_mutex_unlock(&admit->lock);
    return is_free;
}

bool admit_is_wanted(struct admit *admit)
{
    (void)pthread_mutex_lock(&admit->lock);
    bool is_wanted = admit->waiting > 0 || admit->closed;
    (void)pthread_mutex_unlock(&admit->lock);
    return is_wanted;
}

/* What became of a ticket; the lock is held. One that still waits gives up. */
static int conclude(struct admit *a, struct admit_ticket *w, bool cancelled,
    unsigned *ret_retry_s, struct err *err)
{
    switch (w->place) {
    case PLACE_TAKEN:
        return 0;
    case PLACE_CLOSED:
        return err_set(err, ERR_UNAVAILABLE, ESHUTDOWN, "the server is stopping");
    case PLACE_WAITING:
        unlink_waiter(a, &a->tenants[w->owner + 1], w);
        return cancelled ? -ECANCELED : refuse(a, ret_retry_s, err);
    default:
        return refuse(a, ret_retry_s, err);
    }
}

int admit_wait(struct admit *admit, struct admit_ticket *ticket, int cancel_fd,
    uint32_t wait_ms, unsigned *ret_retry_s, struct err *err)
{
    int r = 0;
    *ret_retry_s = 1;
    if (ticket->wake_fd >= 0) {
        uint32_t most_ms = wait_ms ? wait_ms : admit->options.wait_ms;
        bool cancelled = sleep_for_place(ticket, cancel_fd, clock_ms() + most_ms);
        (void)pthread_mutex_lock(&admit->lock);
        r = conclude(admit, ticket, cancelled, ret_retry_s, err);
        close_fd(&ticket->wake_fd);
        (void)pthread_mutex_unlock(&admit->lock);
    }
    ticket->enter_ns = clock_ns();
    ticket->queue_ms = (double)(ticket->enter_ns - ticket->began_ns) / 1e6;
    return r;
}

int admit_reserve(
    struct admit *admit, int owner, uint64_t memory_mb, unsigned *ret_retry_s, struct err *err)
{
    (void)pthread_mutex_lock(&admit->lock);
    int r = admit->closed ? err_set(err, ERR_UNAVAILABLE, ESHUTDOWN, "the server is stopping")
                          : check_quota(&admit->tenants[owner + 1], ret_retry_s, err);
    if (r == 0 && (admit->reserved_mb + memory_mb > admit->options.reserve_mb ||
                      admit->promised_mb + memory_mb > admit->options.memory_mb)) {
        admit->refused++;
        *ret_retry_s = retry_s(admit);
        r = err_set(err, ERR_BUSY, EAGAIN,
            "there is no memory for another session of %llu MiB: %llu of %llu MiB are promised "
            "to sessions; delete one, or ask for less memory_mb",
            (unsigned long long)memory_mb, (unsigned long long)admit->reserved_mb,
            (unsigned long long)admit->options.reserve_mb);
    }
    if (r == 0) {
        admit->reserved_mb += memory_mb;
        admit->promised_mb += memory_mb;
    }
    (void)pthread_mutex_unlock(&admit->lock);
    return r;
}

void admit_give_back(struct admit *admit, uint64_t memory_mb)
{
    (void)pthread_mutex_lock(&admit->lock);
    admit->reserved_mb -= memory_mb;
    admit->promised_mb -= memory_mb;
    let_in(admit);
    (void)pthread_mutex_unlock(&admit->lock);
}

int admit_check(struct admit *admit, int owner, unsigned *ret_retry_s, struct err *err)
{
    (void)pthread_mutex_lock(&admit->lock);
    int r = admit->closed ? err_set(err, ERR_UNAVAILABLE, ESHUTDOWN, "the server is stopping")
                          : check_quota(&admit->tenants[owner + 1], ret_retry_s, err);
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
    admit->running--;
    t->running--;
    admit->promised_mb -= ticket->memory_mb;
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
    *ret = (struct admit_state){.running = admit->running,
        .waiting = admit->waiting,
        .concurrency = admit->options.concurrency,
        .queue = admit->options.queue,
        .memory_promised_mb = admit->promised_mb,
        .memory_mb = admit->options.memory_mb,
        .refused = admit->refused};
    (void)pthread_mutex_unlock(&admit->lock);
}
