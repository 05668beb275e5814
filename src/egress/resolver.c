/* SPDX-License-Identifier: Apache-2.0 */

/* See resolver.h. A *lookup* is one question to the name servers; all callers that asked the
 * same for one owner wait for it. The sockets of c-ares stand in an epoll of their own, whose
 * descriptor the owner watches. */

#include "egress/resolver.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "egress/dns.h"

#include <ares.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

enum { TIMEOUT_MS = 2000, TRIES = 2, CLASS_IN = 1, EDNS_BYTES = 1232, DNS_PORT = 53 };

struct key {
    uint32_t owner;
    uint16_t type;
    char name[NETWORK_NAME];
};

struct waiter {
    struct waiter *next;
    resolver_done *done;
    void *context;
};

struct lookup {
    struct resolver *resolver;
    struct lookup *next;
    struct waiter *waiters; /* the newest first */
    bool is_answered;       /* its waiters are being called; no new one may join */
    struct key key;
};

/* An answer that is kept; until_ms 0: none. */
struct kept {
    uint64_t until_ms;
    struct key key;
    enum resolver_status status;
    size_t count;
    struct address *addresses;
};

struct resolver {
    ares_channel channel;
    int epoll_fd;
    struct lookup *lookups;
    size_t outstanding;
    size_t waiting;
    struct kept cache[RESOLVER_CACHE];
};

/* --- kept answers: each question has one place, which a later one may take */

static bool is_same_key(const struct key *a, const struct key *b)
{
    return a->owner == b->owner && a->type == b->type && strcmp(a->name, b->name) == 0;
}

static struct kept *kept_place(struct resolver *r, const struct key *key)
{
    uint64_t hash = 14695981039346656037u ^ key->owner ^ (uint64_t)key->type << 32;
    for (const char *c = key->name; *c; c++)
        hash = (hash ^ (unsigned char)*c) * 1099511628211u;
    return &r->cache[(hash ^ hash >> 32) % RESOLVER_CACHE];
}

static void kept_clear(struct kept *k)
{
    free(k->addresses);
    *k = (struct kept){.until_ms = 0};
}

static void keep(
    struct resolver *r, const struct key *key, const struct resolver_answer *answer)
{
    struct kept *k = kept_place(r, key);
    uint32_t seconds = answer->ttl_s < RESOLVER_CACHE_S ? answer->ttl_s : RESOLVER_CACHE_S;
    if (answer->raw || answer->status == RESOLVER_FAILED)
        return;
    if (answer->status != RESOLVER_FOUND)
        seconds = RESOLVER_CACHE_MISSING_S;
    if (seconds == 0)
        return;
    kept_clear(k);
    k->key = *key;
    k->until_ms = clock_ms() + (uint64_t)seconds * 1000;
    k->status = answer->status;
    k->count = answer->count;
    k->addresses = xcalloc(answer->count + 1, sizeof(*k->addresses));
    memcpy(k->addresses, answer->addresses, answer->count * sizeof(*k->addresses));
}

/* Fills *ret from a kept answer. */
static bool find_kept(struct resolver *r, const struct key *key, struct resolver_answer *ret)
{
    const struct kept *k = kept_place(r, key);
    uint64_t now = clock_ms();
    if (k->until_ms <= now || !is_same_key(&k->key, key))
        return false;
    *ret = (struct resolver_answer){.status = k->status, .count = k->count};
    ret->ttl_s = (uint32_t)((k->until_ms - now) / 1000);
    memcpy(ret->addresses, k->addresses, k->count * sizeof(*k->addresses));
    return true;
}

/* --- lookups */

static struct lookup *find_lookup(struct resolver *r, const struct key *key)
{
    struct lookup *l = r->lookups;
    while (l && (l->is_answered || !is_same_key(&l->key, key)))
        l = l->next;
    return l;
}

/* A key gets no more lookups than it leaves free for the others. Lookups without a waiter
 * still count, because the name servers are still asked. */
static bool has_room(const struct resolver *r, uint32_t owner)
{
    size_t own = 0;
    for (const struct lookup *l = r->lookups; l; l = l->next)
        own += l->key.owner == owner;
    return own < RESOLVER_MAX_OUTSTANDING - r->outstanding;
}

static void lookup_free(struct lookup *l)
{
    struct resolver *r = l->resolver;
    struct lookup **link = &r->lookups;
    while (*link != l)
        link = &(*link)->next;
    *link = l->next;
    r->outstanding--;
    for (struct waiter *w; (w = l->waiters) != NULL;) {
        l->waiters = w->next;
        r->waiting--;
        free(w);
    }
    free(l);
}

/* Calls the waiters of an answered lookup, one by one: each may forget others. */
static void lookup_answer(struct lookup *l, const struct resolver_answer *answer)
{
    l->is_answered = true;
    for (struct waiter *w; (w = l->waiters) != NULL;) {
        l->waiters = w->next;
        l->resolver->waiting--;
        w->done(w->context, answer);
        free(w);
    }
    lookup_free(l);
}

static void add_address(struct resolver_answer *answer, const struct address *a, int ttl_s)
{
    uint32_t seconds = ttl_s > 0 ? (uint32_t)ttl_s : 0;
    if (answer->count == 0 || seconds < answer->ttl_s)
        answer->ttl_s = seconds;
    answer->addresses[answer->count++] = *a;
}

/* Reads the addresses of an answer; returns the status of c-ares. */
static int read_addresses(
    struct resolver_answer *ret, uint16_t type, const unsigned char *data, int len)
{
    struct ares_addrttl v4[RESOLVER_MAX_ADDRESSES];
    struct ares_addr6ttl v6[RESOLVER_MAX_ADDRESSES];
    struct address a;
    int count = RESOLVER_MAX_ADDRESSES;
    int status = type == DNS_A ? ares_parse_a_reply(data, len, NULL, v4, &count)
                               : ares_parse_aaaa_reply(data, len, NULL, v6, &count);
    if (status != ARES_SUCCESS)
        return status;
    for (int i = 0; i < count && type == DNS_A; i++) {
        a = address_v4((const uint8_t *)&v4[i].ipaddr);
        add_address(ret, &a, v4[i].ttl);
    }
    for (int i = 0; i < count && type == DNS_AAAA; i++) {
        memcpy(a.bytes, &v6[i].ip6addr, sizeof(a.bytes));
        add_address(ret, &a, v6[i].ttl);
    }
    return ret->count > 0 ? ARES_SUCCESS : ARES_ENODATA;
}

static enum resolver_status status_of(int ares_status)
{
    switch (ares_status) {
    case ARES_SUCCESS:
        return RESOLVER_FOUND;
    case ARES_ENODATA:
        return RESOLVER_NO_DATA;
    case ARES_ENOTFOUND:
        return RESOLVER_NO_NAME;
    default:
        return RESOLVER_FAILED;
    }
}

/* c-ares has an answer, or none. */
static void on_answer(void *argument, int status, int timeouts, unsigned char *data, int len)
{
    struct lookup *l = argument;
    struct resolver_answer answer = {.count = 0};
    (void)timeouts;
    if (status == ARES_EDESTRUCTION) {
        lookup_free(l);
        return;
    }
    bool has_addresses = l->key.type == DNS_A || l->key.type == DNS_AAAA;
    if (status == ARES_SUCCESS && has_addresses)
        status = read_addresses(&answer, l->key.type, data, len);
    answer.status = status_of(status);
    if (!has_addresses && data && answer.status != RESOLVER_FAILED) {
        answer.raw = data;
        answer.raw_len = (size_t)len;
    }
    keep(l->resolver, &l->key, &answer);
    lookup_answer(l, &answer);
}

static void lookup_join(struct lookup *l, resolver_done *done, void *context)
{
    struct waiter *w = xcalloc(1, sizeof(*w));
    *w = (struct waiter){.next = l->waiters, .done = done, .context = context};
    l->waiters = w;
    l->resolver->waiting++;
}

int resolver_ask(struct resolver *r, const char *name, uint16_t type, uint32_t owner,
    resolver_done *done, void *context)
{
    struct key key = {.owner = owner, .type = type};
    struct resolver_answer answer;
    size_t len = strlen(name);
    if (len == 0 || len >= sizeof(key.name))
        return -EINVAL;
    memcpy(key.name, name, len);
    if (find_kept(r, &key, &answer)) {
        done(context, &answer);
        return 0;
    }
    struct lookup *l = find_lookup(r, &key);
    if (r->waiting >= RESOLVER_MAX_WAITERS || (!l && !has_room(r, owner)))
        return -EBUSY;
    if (l) {
        lookup_join(l, done, context);
        return 0;
    }
    l = xcalloc(1, sizeof(*l));
    *l = (struct lookup){.resolver = r, .next = r->lookups, .key = key};
    r->lookups = l;
    r->outstanding++;
    lookup_join(l, done, context);
    ares_query(r->channel, key.name, CLASS_IN, type, on_answer, l); /* may free it */
    return 0;
}

void resolver_forget(struct resolver *r, const void *context)
{
    for (struct lookup *l = r->lookups; l; l = l->next) {
        struct waiter **link = &l->waiters;
        while (*link) {
            struct waiter *w = *link;
            if (w->context != context) {
                link = &w->next;
                continue;
            }
            *link = w->next;
            r->waiting--;
            free(w);
        }
    }
}

/* --- the channel of c-ares */

/* c-ares wants to read from or write to a socket of its own, or no longer. */
static void on_socket(void *data, ares_socket_t fd, int readable, int writable)
{
    const struct resolver *r = data;
    struct epoll_event event = {.data.fd = fd};
    event.events = (readable ? EPOLLIN : 0u) | (writable ? EPOLLOUT : 0u);
    if (event.events == 0)
        (void)epoll_ctl(r->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
    else if (epoll_ctl(r->epoll_fd, EPOLL_CTL_MOD, fd, &event) < 0 && errno == ENOENT)
        (void)epoll_ctl(r->epoll_fd, EPOLL_CTL_ADD, fd, &event);
}

static int set_servers(struct resolver *r, const struct resolver_options *options)
{
    struct ares_addr_port_node nodes[NETWORK_MAX_RESOLVERS] = {{.next = NULL}};
    int port = options->port ? options->port : DNS_PORT;
    if (options->server_count > NETWORK_MAX_RESOLVERS)
        return -EINVAL;
    for (size_t i = 0; i < options->server_count; i++) {
        const struct address *a = &options->servers[i];
        bool is_v4 = address_is_v4(a);
        nodes[i].next = i + 1 < options->server_count ? &nodes[i + 1] : NULL;
        nodes[i].family = is_v4 ? AF_INET : AF_INET6;
        nodes[i].udp_port = nodes[i].tcp_port = port;
        memcpy(&nodes[i].addr, a->bytes + (is_v4 ? 12 : 0), is_v4 ? 4 : 16);
    }
    if (options->server_count == 0)
        return 0;
    return ares_set_servers_ports(r->channel, nodes) == ARES_SUCCESS ? 0 : -ENOMEM;
}

int resolver_new(struct resolver **ret, const struct resolver_options *options)
{
    char lookups[] = "b"; /* name servers only, not /etc/hosts */
    struct resolver *r = xcalloc(1, sizeof(*r));
    struct ares_options wish = {
        .flags = ARES_FLAG_NOSEARCH | ARES_FLAG_NOALIASES | ARES_FLAG_EDNS,
        .timeout = options->timeout_ms ? options->timeout_ms : TIMEOUT_MS,
        .tries = TRIES,
        .lookups = lookups,
        .ednspsz = EDNS_BYTES,
        .sock_state_cb = on_socket,
        .sock_state_cb_data = r,
    };
    int mask = ARES_OPT_FLAGS | ARES_OPT_TIMEOUTMS | ARES_OPT_TRIES | ARES_OPT_LOOKUPS |
               ARES_OPT_EDNSPSZ | ARES_OPT_SOCK_STATE_CB;
    r->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (r->epoll_fd < 0) {
        int problem = -errno;
        free(r);
        return problem;
    }
    if (ares_library_init(ARES_LIB_INIT_ALL) != ARES_SUCCESS ||
        ares_init_options(&r->channel, &wish, mask) != ARES_SUCCESS) {
        resolver_free(r);
        return -EIO;
    }
    int problem = set_servers(r, options);
    if (problem < 0) {
        resolver_free(r);
        return problem;
    }
    *ret = r;
    return 0;
}

void resolver_free(struct resolver *r)
{
    if (!r)
        return;
    if (r->channel)
        ares_destroy(r->channel); /* every lookup ends with ARES_EDESTRUCTION */
    for (size_t i = 0; i < RESOLVER_CACHE; i++)
        kept_clear(&r->cache[i]);
    close_fd(&r->epoll_fd);
    free(r);
}

int resolver_fd(const struct resolver *r)
{
    return r->epoll_fd;
}

int resolver_timeout_ms(struct resolver *r)
{
    struct timeval room;
    const struct timeval *left = ares_timeout(r->channel, NULL, &room);
    if (!left)
        return -1;
    return (int)(left->tv_sec * 1000 + left->tv_usec / 1000 + 1);
}

void resolver_process(struct resolver *r)
{
    struct epoll_event events[16];
    int count = epoll_wait(r->epoll_fd, events, 16, 0);
    for (int i = 0; i < count; i++) {
        int fd = events[i].data.fd;
        bool can_write = events[i].events & EPOLLOUT;
        bool can_read = events[i].events & ~(uint32_t)EPOLLOUT;
        ares_process_fd(
            r->channel, can_read ? fd : ARES_SOCKET_BAD, can_write ? fd : ARES_SOCKET_BAD);
    }
    ares_process_fd(r->channel, ARES_SOCKET_BAD, ARES_SOCKET_BAD); /* handles timeouts */
}
