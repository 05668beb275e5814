/* SPDX-License-Identifier: Apache-2.0 */

/* See connection.h. All records live in one array for good. An epoll event carries index and
 * generation, so a late event for a closed connection has no effect. One lock protects
 * everything but the phase, which changes several times per request and is one atomic word. */

#include "http/connection.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "http/send.h"
#include "judge/siphash.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    PHASE_BITS = 3, /* enough for enum phase */
    TICK_MS = 500,  /* between two looks at the deadlines; also drives service_tick() */
    EVENTS = 64,    /* per epoll_wait() */
    REPLY_TIMEOUT_MS = 60000, /* for a client to read a piece of its reply */
    /* Bounds of extra_places(). */
    EXTRA_MIN = 64,
    EXTRA_MAX = 512,
    SPARE = 16,       /* when fewer places are left, strangers are closed at once */
    SHARE_MIN = 16,   /* of strangers: an eighth of all, at least this, at most a quarter */
    SILENT_MS = 2000, /* a stranger is not closed before this age, so that honest clients get
                       * through */
    /* Deadline of a stranger for its headers, with keys also for its body. */
    STRANGER_MS = 5000,
    CROWDS = 1024, /* counters of strangers by address; the address is hashed */
};

struct connection {
    struct connections *all;
    uint32_t index;
    uint32_t generation;
    struct connection *next_free;
    bool is_open;
    bool is_proven;
    bool is_unix;
    bool is_closing; /* shut down, but its thread has not ended yet */
    int fd;
    int owner;      /* key of a proven connection, -1 without keys */
    uint16_t crowd; /* counter of its address */
    uint64_t begun_ms;
    /* Milliseconds, with the phase in the lowest PHASE_BITS bits. */
    _Atomic uint64_t phase_since;
    int cancel_fd; /* -1: no run is followed */
    bool is_gone;
};

struct connections {
    struct state *state;
    struct connection *items;
    unsigned count;
    unsigned open;
    unsigned max;
    unsigned share;     /* places of max that strangers may have */
    unsigned strangers; /* neither count includes closing connections */
    unsigned proven;
    unsigned *of_key; /* proven connections by owner + 1 */
    unsigned most;    /* proven connections that one key may have */
    struct siphash_key secret;
    unsigned crowds[CROWDS]; /* strangers by hash of their address */
    struct connection *free_list;
    pthread_mutex_t lock;
    pthread_t thread;
    bool has_thread;
    int epoll_fd;
    int stop_fd;
};

/* Whether the short deadline applies. A server without keys lets the first body of a stranger
 * take longer, because it closes that connection anyway when other clients need the place. */
static bool is_hurried(const struct connection *c, enum phase phase)
{
    bool is_asking = phase == PHASE_HEADERS || phase == PHASE_NEXT;
    return !c->is_proven && !c->is_unix && phase != PHASE_HANDLING && phase != PHASE_TAKEN &&
           (is_asking || c->all->state->keys.count);
}

static uint64_t patience_ms(const struct connection *c, enum phase phase)
{
    const struct config *config = &c->all->state->config;
    switch (phase) {
    case PHASE_HEADERS:
    case PHASE_NEXT:
    case PHASE_BODY:
        return config->request_timeout_s * 1000;
    case PHASE_IDLE:
        return config->idle_timeout_s * 1000;
    case PHASE_REPLY:
        return REPLY_TIMEOUT_MS;
    default:
        return UINT64_MAX;
    }
}

static uint64_t deadline_ms(const struct connection *c, enum phase phase)
{
    uint64_t ms = patience_ms(c, phase);
    return is_hurried(c, phase) && ms > STRANGER_MS ? STRANGER_MS : ms;
}

static enum phase phase_of(const struct connection *c)
{
    return (enum phase)(c->phase_since & ((1u << PHASE_BITS) - 1));
}

/* Only shuts the socket down. The connection's own thread notices that and closes it. */
static void close_late(struct connections *all)
{
    uint64_t now = clock_ms();
    (void)pthread_mutex_lock(&all->lock);
    for (unsigned i = 0; i < all->count; i++) {
        struct connection *c = &all->items[i];
        enum phase phase = phase_of(c);
        uint64_t since_ms = c->phase_since >> PHASE_BITS;
        if (c->is_open && now > since_ms && now - since_ms > deadline_ms(c, phase)) {
            (void)shutdown(c->fd, SHUT_RDWR);
            all->state->metrics.late += phase != PHASE_IDLE;
            c->phase_since = now << PHASE_BITS | phase;
        }
    }
    (void)pthread_mutex_unlock(&all->lock);
}

static void tell_cancel(const struct connection *c)
{
    const uint64_t one = 1;
    if (c->cancel_fd >= 0) {
        ssize_t n = write(c->cancel_fd, &one, sizeof(one));
        (void)n; /* fails only when it is readable already */
    }
}

static void on_gone(struct connections *all, uint64_t tag)
{
    (void)pthread_mutex_lock(&all->lock);
    struct connection *c = &all->items[tag >> 32];
    if (c->is_open && c->generation == (uint32_t)tag) {
        c->is_gone = true;
        tell_cancel(c);
    }
    (void)pthread_mutex_unlock(&all->lock);
}

static void *watch(void *arg)
{
    struct connections *all = arg;
    uint64_t ticked_ms = clock_ms();
    for (;;) {
        struct epoll_event events[EVENTS];
        int n = epoll_wait(all->epoll_fd, events, EVENTS, TICK_MS);
        for (int i = 0; i < n; i++) {
            if (events[i].data.u64 == UINT64_MAX)
                return NULL;
            on_gone(all, events[i].data.u64);
        }
        if (clock_ms() - ticked_ms >= TICK_MS) {
            ticked_ms = clock_ms();
            close_late(all);
            service_tick(all->state);
        }
    }
}

static int start(struct connections *all)
{
    struct epoll_event stop = {.events = EPOLLIN, .data.u64 = UINT64_MAX};
    if (getrandom(&all->secret, sizeof(all->secret), 0) != sizeof(all->secret))
        return -EIO;
    all->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    all->stop_fd = eventfd(0, EFD_CLOEXEC);
    if (all->epoll_fd < 0 || all->stop_fd < 0 ||
        epoll_ctl(all->epoll_fd, EPOLL_CTL_ADD, all->stop_fd, &stop) < 0)
        return -errno;
    int r = pthread_create(&all->thread, NULL, watch, all);
    all->has_thread = r == 0;
    return -r;
}

/* Places beyond max. A closed connection keeps its place until its thread has run, which takes
 * time on a busy machine. The number depends on the descriptor limit. */
static unsigned extra_places(unsigned max)
{
    struct rlimit fds;
    if (getrlimit(RLIMIT_NOFILE, &fds) < 0 || fds.rlim_cur <= max)
        return EXTRA_MIN;
    rlim_t extra = (fds.rlim_cur - max) / 16;
    return extra < EXTRA_MIN ? EXTRA_MIN : extra > EXTRA_MAX ? EXTRA_MAX : (unsigned)extra;
}

int connections_open(
    struct connections **ret, struct state *state, unsigned max, struct err *err)
{
    struct connections *all = xcalloc(1, sizeof(*all));
    all->state = state;
    all->epoll_fd = all->stop_fd = -1;
    all->max = max;
    all->share = max / 8 > SHARE_MIN ? max / 8 : SHARE_MIN;
    if (all->share > max / 4)
        all->share = max / 4;
    size_t keys = state->keys.count;
    all->of_key = xcalloc(keys + 1, sizeof(*all->of_key));
    all->most = max - all->share;
    if (keys > 1)
        all->most -= all->most / 4;
    all->count = max + max / 8 + extra_places(max);
    all->items = xcalloc(all->count, sizeof(*all->items));
    (void)pthread_mutex_init(&all->lock, NULL);
    for (unsigned i = all->count; i-- > 0;) {
        struct connection *c = &all->items[i];
        *c = (struct connection){
            .all = all, .index = i, .cancel_fd = -1, .next_free = all->free_list};
        all->free_list = c;
    }
    int r = start(all);
    if (r < 0) {
        connections_close(all);
        return err_set(err, ERR_INTERNAL, -r, "cannot watch connections: %s", strerror(-r));
    }
    *ret = all;
    return 0;
}

void connections_close(struct connections *all)
{
    const uint64_t one = 1;
    if (!all)
        return;
    if (all->has_thread && write(all->stop_fd, &one, sizeof(one)) > 0)
        (void)pthread_join(all->thread, NULL);
    close_fd(&all->epoll_fd);
    close_fd(&all->stop_fd);
    (void)pthread_mutex_destroy(&all->lock);
    free(all->items);
    free(all->of_key);
    free(all);
}

/* Whether a proven connection may be closed for another: it has no request in progress. Without
 * keys, a connection that sends or reads slowly may be closed too. */
static bool is_idle(const struct connection *c, uint64_t now)
{
    enum phase phase = phase_of(c);
    bool is_slow = phase != PHASE_HANDLING && phase != PHASE_TAKEN &&
                   now > (c->phase_since >> PHASE_BITS) + STRANGER_MS;
    return c->is_proven && (phase == PHASE_IDLE || (is_slow && c->all->state->keys.count == 0));
}

static void count_out(struct connection *c)
{
    struct connections *all = c->all;
    all->proven -= c->is_proven;
    if (c->is_proven)
        all->of_key[c->owner + 1]--;
    all->strangers -= !c->is_proven;
    all->crowds[c->crowd] -= !c->is_proven;
}

/* A client whose first request has not come yet may be honest but slow: it gets 503, so that it
 * tries again. */
static void push_out(struct connection *c)
{
    count_out(c);
    c->is_closing = true;
    if (phase_of(c) == PHASE_HEADERS)
        send_unavailable(c->fd);
    (void)shutdown(c->fd, SHUT_RDWR);
}

enum { ANY_KEY = -2 };

/* Closes the connection of a key (or ANY_KEY) that has been idle longest. False when none is
 * idle. */
static bool close_idlest(struct connections *all, int owner)
{
    struct connection *idlest = NULL;
    uint64_t now = clock_ms();
    for (unsigned i = 0; i < all->count; i++) {
        struct connection *c = &all->items[i];
        if (c->is_open && !c->is_closing && is_idle(c, now) &&
            (owner == ANY_KEY || c->owner == owner) &&
            (!idlest || c->phase_since < idlest->phase_since))
            idlest = c;
    }
    if (idlest)
        push_out(idlest);
    return idlest;
}

/* Closes the oldest stranger of the address with the most strangers, among those that began
 * before before_ms. */
static void close_stranger(struct connections *all, uint64_t before_ms)
{
    struct connection *worst = NULL;
    for (unsigned i = 0; i < all->count; i++) {
        struct connection *c = &all->items[i];
        if (!c->is_open || c->is_closing || c->is_proven || c->begun_ms > before_ms)
            continue;
        unsigned crowd = all->crowds[c->crowd];
        unsigned most = worst ? all->crowds[worst->crowd] : 0;
        if (!worst || crowd > most || (crowd == most && c->begun_ms < worst->begun_ms))
            worst = c;
    }
    if (worst)
        push_out(worst);
}

/* The hash is keyed with a secret, so that no client can choose addresses that collide with
 * another's. All addresses of an IPv6 /64 network count as one. */
static uint16_t crowd_of(const struct connections *all, const struct sockaddr *from)
{
    struct siphash hash;
    uint64_t result[2];
    uint64_t network = 0;
    if (from && from->sa_family == AF_INET) {
        network = ((const struct sockaddr_in *)from)->sin_addr.s_addr;
    } else if (from && from->sa_family == AF_INET6) {
        const struct in6_addr *six = &((const struct sockaddr_in6 *)from)->sin6_addr;
        bool is_four = IN6_IS_ADDR_V4MAPPED(six);
        memcpy(&network, six->s6_addr + (is_four ? 8 : 0), sizeof(network));
    }
    siphash_init(&hash, &all->secret);
    for (unsigned bits = 0; bits < 64; bits += 8)
        siphash_add(&hash, (unsigned char)(network >> bits));
    siphash_end(hash, result);
    return (uint16_t)(result[0] % CROWDS);
}

static void make_room(struct connections *all)
{
    uint64_t now = clock_ms();
    if (all->open + SPARE >= all->count)
        close_stranger(all, now);
    else if (all->strangers >= all->share && now > SILENT_MS)
        close_stranger(all, now - SILENT_MS);
}

struct connection *connection_begin(
    struct connections *all, int fd, const struct sockaddr *from)
{
    (void)pthread_mutex_lock(&all->lock);
    make_room(all);
    struct connection *c = all->free_list;
    if (c) {
        all->free_list = c->next_free;
        c->is_open = true;
        c->is_closing = c->is_proven = false;
        c->is_unix = !from || from->sa_family == AF_UNIX;
        c->crowd = crowd_of(all, from);
        all->crowds[c->crowd]++;
        all->strangers++;
        all->open++;
        c->fd = fd;
        c->begun_ms = clock_ms();
        c->phase_since = c->begun_ms << PHASE_BITS | PHASE_HEADERS;
        c->cancel_fd = -1;
        c->is_gone = false;
        all->state->metrics.connections++;
    }
    (void)pthread_mutex_unlock(&all->lock);
    return c;
}

bool connection_prove(struct connection *c, int owner)
{
    struct connections *all = c->all;
    unsigned *own = &all->of_key[owner + 1];
    bool has_room = true;
    if (c->is_proven)
        return true;
    (void)pthread_mutex_lock(&all->lock);
    if (*own >= all->most)
        has_room = close_idlest(all, owner);
    else if (all->proven >= all->max - all->share)
        has_room = close_idlest(all, ANY_KEY);
    if (has_room && !c->is_closing) {
        count_out(c);
        c->is_proven = true;
        c->owner = owner;
        all->proven++;
        (*own)++;
    }
    (void)pthread_mutex_unlock(&all->lock);
    return has_room;
}

void connection_end(struct connection *c)
{
    struct connections *all = c->all;
    (void)pthread_mutex_lock(&all->lock);
    if (!c->is_closing)
        count_out(c);
    c->is_open = false;
    all->open--;
    c->generation++;
    c->next_free = all->free_list;
    all->free_list = c;
    all->state->metrics.connections--;
    (void)pthread_mutex_unlock(&all->lock);
}

void connection_phase(struct connection *c, enum phase phase)
{
    c->phase_since = clock_ms() << PHASE_BITS | phase;
}

/* A half-closed connection counts as left: a client that wants its answer keeps its side open.
 */
void connection_follow(struct connection *c, int cancel_fd)
{
    struct epoll_event event = {.events = EPOLLRDHUP | EPOLLHUP | EPOLLERR | EPOLLONESHOT,
        .data.u64 = (uint64_t)c->index << 32 | c->generation};
    (void)pthread_mutex_lock(&c->all->lock);
    c->cancel_fd = cancel_fd;
    (void)pthread_mutex_unlock(&c->all->lock);
    if (epoll_ctl(c->all->epoll_fd, EPOLL_CTL_ADD, c->fd, &event) < 0 && errno == EEXIST)
        (void)epoll_ctl(c->all->epoll_fd, EPOLL_CTL_MOD, c->fd, &event);
}

void connection_unfollow(struct connection *c)
{
    (void)epoll_ctl(c->all->epoll_fd, EPOLL_CTL_DEL, c->fd, NULL);
    (void)pthread_mutex_lock(&c->all->lock);
    c->cancel_fd = -1;
    (void)pthread_mutex_unlock(&c->all->lock);
}

bool connection_is_gone(const struct connection *c)
{
    (void)pthread_mutex_lock(&c->all->lock);
    bool is_gone = c->is_gone;
    (void)pthread_mutex_unlock(&c->all->lock);
    return is_gone;
}

void connections_cancel_all(struct connections *all)
{
    (void)pthread_mutex_lock(&all->lock);
    for (unsigned i = 0; i < all->count; i++) {
        if (all->items[i].is_open)
            tell_cancel(&all->items[i]);
    }
    (void)pthread_mutex_unlock(&all->lock);
}

unsigned connections_busy(struct connections *all, bool slow)
{
    unsigned busy = 0;
    (void)pthread_mutex_lock(&all->lock);
    for (unsigned i = 0; i < all->count; i++) {
        const struct connection *c = &all->items[i];
        enum phase phase = phase_of(c);
        busy += c->is_open && (phase == PHASE_HANDLING ||
                                  (slow && (phase == PHASE_REPLY || phase == PHASE_BODY ||
                                               phase == PHASE_TAKEN)));
    }
    (void)pthread_mutex_unlock(&all->lock);
    return busy;
}

void connections_end_all(struct connections *all)
{
    unsigned open;
    do {
        (void)pthread_mutex_lock(&all->lock);
        open = all->open;
        for (unsigned i = 0; i < all->count; i++) {
            if (all->items[i].is_open)
                (void)shutdown(all->items[i].fd, SHUT_RDWR);
        }
        (void)pthread_mutex_unlock(&all->lock);
        if (open)
            (void)poll(NULL, 0, 5);
    } while (open);
}
