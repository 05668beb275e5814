/* SPDX-License-Identifier: Apache-2.0 */

/* A box: the sockets of its kit, its policy, what it uses, and the decision about each of its
 * attempts. */

#include "egress/egress.h"

#include "base/alloc.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BOX_DESCRIPTORS = EGRESS_ADOPT_FDS };

struct box *box_new(struct egress *e, uint64_t number, uint32_t owner)
{
    struct box *b = xcalloc(1, sizeof(*b));
    b->egress = e;
    b->number = number;
    b->owner = owner_join(&e->owners, owner, &e->ceiling.key_max, e->now_ms);
    b->account.parent = &b->owner->account;
    b->raw[0] = b->raw[1] = -EBADF;
    b->channel = (struct source){.box = b, .serve = channel_serve, .owner = b, .fd = -EBADF};
    for (int i = 0; i < KIT_RAW4; i++)
        b->kit[i] = (struct source){.box = b, .owner = b, .fd = -EBADF};
    b->kit[KIT_REPORTS].serve = tcp_serve_reports;
    b->kit[KIT_TCP4].serve = b->kit[KIT_TCP6].serve = tcp_serve_listener;
    b->kit[KIT_UDP4].serve = b->kit[KIT_UDP6].serve = udp_serve_listener;
    STAILQ_INIT(&b->letters);
    TAILQ_INIT(&b->ready);
    TAILQ_INIT(&b->conns);
    TAILQ_INIT(&b->flows);
    TAILQ_INIT(&b->lookups);
    TAILQ_INIT(&b->questions);
    TAILQ_INSERT_TAIL(&e->boxes, b, entry);
    e->descriptors += BOX_DESCRIPTORS;
    return b;
}

void box_take_kit(struct box *b, int fds[KIT_COUNT])
{
    for (int i = 0; i < KIT_RAW4; i++) {
        b->kit[i].fd = fds[i];
        if (fds[i] >= 0)
            (void)fcntl(fds[i], F_SETFL, O_NONBLOCK);
    }
    b->raw[0] = fds[KIT_RAW4];
    b->raw[1] = fds[KIT_RAW6];
    b->has_v6 = fds[KIT_RAW6] >= 0;
}

struct policy_view box_view(const struct box *b)
{
    return (struct policy_view){.policy = &b->policy,
        .ceiling = &b->egress->ceiling,
        .pins = &b->pins,
        .now_ms = b->egress->now_ms};
}

/* Ends what the new policy does not permit. */
static void reconsider_conns(struct box *b)
{
    struct policy_view view = box_view(b);
    for (struct conn *c = TAILQ_FIRST(&b->conns), *next; c; c = next) {
        const struct packet_ends *ends = &c->syn.ends;
        struct decision d;
        next = TAILQ_NEXT(c, entry);
        if (c->question)
            continue; /* ask_again() has just decided about it */
        if (ends->destination_port == DNS_PORT) {
            if (b->policy.mode == NETWORK_NONE)
                tcp_end(c, true);
            continue;
        }
        policy_decide_again(&d, &view, &c->ref.key, &ends->destination);
        bool is_unchecked = c->state == CONN_RELAYING && c->check == CHECK_NONE;
        bool is_kept = c->is_approved && d.must_ask;
        bool is_other = c->server_name && !is_kept &&
                        policy_decide_server(&view, c->server_name, ends->destination_port);
        bool has_lost = c->secrets & ~b->policy.secrets;
        if ((d.reason && !is_kept) || has_lost || (d.is_by_name && (is_unchecked || is_other)))
            tcp_end(c, true);
        else if (d.is_by_name && c->check == CHECK_NONE)
            c->check = CHECK_PENDING;
        c->is_by_name = d.is_by_name;
        c->possible &= b->policy.secrets;
    }
}

static void reconsider_flows(struct box *b)
{
    struct policy_view view = box_view(b);
    for (struct flow *f = TAILQ_FIRST(&b->flows), *next; f; f = next) {
        struct decision d;
        next = TAILQ_NEXT(f, entry);
        policy_decide_again(&d, &view, &f->ref.key, &f->ends.destination);
        if (!f->question && d.reason && !(f->is_approved && d.must_ask))
            udp_end(f);
    }
}

static void watch_kit(struct box *b)
{
    for (int i = 0; i < KIT_RAW4; i++)
        if (b->kit[i].fd >= 0 && loop_add(b->egress, &b->kit[i]) < 0)
            log_event(LOG_ERROR, "cannot watch a socket of a box", (char *)NULL);
}

void box_set_policy(struct box *b, const struct network_policy *policy)
{
    if (b->is_leaving)
        return;
    b->policy = *policy;
    if (!policy_enforce(&b->policy, &b->egress->ceiling))
        log_event(
            LOG_WARN, "a policy is above the ceiling: the box has no network", (char *)NULL);
    account_limit(&b->account, &b->policy.limits, false, b->egress->now_ms);
    if (!b->has_policy) {
        b->has_policy = true;
        watch_kit(b);
        return;
    }
    ask_again(b);
    reconsider_conns(b);
    reconsider_flows(b);
}

static void end_traffic(struct box *b)
{
    for (struct conn *c = TAILQ_FIRST(&b->conns), *next; c; c = next) {
        next = TAILQ_NEXT(c, entry);
        tcp_end(c, true);
    }
    for (struct flow *f = TAILQ_FIRST(&b->flows), *next; f; f = next) {
        next = TAILQ_NEXT(f, entry);
        udp_end(f);
    }
}

void box_exceed(struct box *b)
{
    b->record.is_limit_hit = true;
    end_traffic(b);
}

/* All but the raw senders, which connections still need. */
static void close_kit(struct box *b)
{
    for (int i = 0; i < KIT_RAW4; i++)
        loop_close(b->egress, &b->kit[i]);
}

void box_empty(struct box *b)
{
    end_traffic(b);
    lookup_end_all(b);
    close_kit(b);
    for (int i = 0; i < 2; i++) {
        if (b->raw[i] >= 0)
            (void)close(b->raw[i]);
        b->raw[i] = -EBADF;
    }
}

/* The record goes first: a request waits for it, and closing sockets takes long. */
static void finish(struct box *b)
{
    end_traffic(b);
    b->is_finished = true;
    b->end_ms = b->egress->now_ms + FAREWELL_MS;
    if (b->channel.fd < 0) {
        box_bury(b);
        return;
    }
    channel_record(b, 0);
    box_empty(b);
    loop_queue(&b->channel); /* the channel ends the box when everything was sent */
}

void box_finish_if_empty(struct box *b)
{
    if (b->is_leaving && !b->is_finished && TAILQ_EMPTY(&b->conns))
        finish(b);
}

/* Takes the connections and datagrams that the programs left in the listeners. Attempts that
 * nobody waits for any more stay there. */
static void take_leftovers(struct box *b)
{
    b->turn_left = TURN_BYTES;
    for (int i = KIT_TCP4; i <= KIT_UDP6; i++)
        if (b->kit[i].fd >= 0 && b->has_policy)
            (void)b->kit[i].serve(&b->kit[i]);
}

void box_drop(struct box *b)
{
    take_leftovers(b);
    lookup_end_all(b);
    b->is_leaving = true;
    b->end_ms = b->egress->now_ms + LEAVING_MS;
    for (struct conn *c = TAILQ_FIRST(&b->conns), *next; c; c = next) {
        next = TAILQ_NEXT(c, entry);
        if (c->state == CONN_RELAYING)
            loop_queue(&c->inside);
        else
            tcp_end(c, true);
    }
    box_finish_if_empty(b);
    if (!b->is_finished)
        close_kit(b);
}

void box_bury(struct box *b)
{
    struct egress *e = b->egress;
    if (b->is_dead)
        return;
    box_empty(b);
    channel_drop_letters(b);
    loop_close(e, &b->channel);
    loop_forget(b);
    b->is_dead = true;
    e->descriptors -= BOX_DESCRIPTORS;
    TAILQ_REMOVE(&e->boxes, b, entry);
    TAILQ_INSERT_TAIL(&e->dead_boxes, b, entry);
}

void box_free(struct box *b)
{
    owner_leave(&b->egress->owners, b->owner);
    ask_free(b);
    pins_done(&b->pins);
    record_done(&b->record);
    free(b);
}

void box_sweep(struct box *b)
{
    uint64_t now = b->egress->now_ms;
    if (b->is_leaving && now >= b->end_ms) {
        if (b->is_finished)
            box_bury(b);
        else
            finish(b);
        return;
    }
    for (struct conn *c = TAILQ_FIRST(&b->conns), *next; c; c = next) {
        next = TAILQ_NEXT(c, entry);
        if (now >= c->deadline_ms)
            tcp_expire(c);
    }
    for (struct flow *f = TAILQ_FIRST(&b->flows), *next; f; f = next) {
        next = TAILQ_NEXT(f, entry);
        if (now >= f->deadline_ms)
            udp_end(f);
    }
}

/* A key gets no more descriptors than it leaves free for the others. */
static bool has_descriptors(const struct box *b, unsigned count)
{
    const struct egress *e = b->egress;
    unsigned held = e->descriptors + count;
    return held <= e->max_descriptors &&
           b->owner->descriptors + count <= e->max_descriptors - held;
}

/* Whether there is a way to the address. An upstream proxy may know one that the host does not,
 * but it must not lead back to the host. */
uint32_t box_check_way(
    const struct egress *e, enum network_protocol protocol, const struct address *to)
{
    if (e->ceiling.upstream_port && protocol == NETWORK_UDP)
        return REASON_NO_ROUTE;
    uint32_t reason = route_check(e, to);
    return e->ceiling.upstream_port && reason == REASON_NO_ROUTE ? 0 : reason;
}

static uint32_t decide(struct box *b, const struct attempt *a, struct decision *d)
{
    struct egress *e = b->egress;
    struct policy_view view = box_view(b);
    policy_decide(d, &view, a->protocol, &a->address, a->port);
    bool is_for_names = a->protocol == NETWORK_TCP && a->port == DNS_PORT;
    if (b->policy.mode == NETWORK_NONE)
        return REASON_NO_NETWORK;
    if (account_is_spent(&b->account))
        return REASON_BYTE_LIMIT;
    if (!account_connect(&b->account, e->now_ms))
        return REASON_CONNECTION_LIMIT;
    d->must_ask = d->must_ask && !is_for_names;
    uint32_t reason = is_for_names || d->must_ask ? 0 : d->reason;
    if (!reason && !has_descriptors(b, a->descriptors))
        reason = REASON_CONNECTION_LIMIT;
    if (!reason && !is_for_names && !(d->must_ask && pins_is_stand_in(&a->address)))
        reason = box_check_way(e, a->protocol, &a->address);
    if (reason)
        account_refuse(&b->account);
    return reason;
}

static void note(struct box *b, struct record_ref *ref)
{
    uint32_t reason = ref->key.reason;
    if (reason == REASON_BYTE_LIMIT || reason == REASON_CONNECTION_LIMIT ||
        reason == REASON_LOOKUP_LIMIT || reason == REASON_QUESTION_LIMIT)
        b->record.is_limit_hit = true;
    if (record_try(&b->record, ref))
        channel_tried(b, ref);
}

enum admission box_admit(
    struct box *b, const struct attempt *a, struct record_ref *ref, bool *ret_is_by_name)
{
    struct decision d;
    uint32_t reason = decide(b, a, &d);
    *ret_is_by_name = d.is_by_name;
    *ref = (struct record_ref){.key = {.is_allowed = reason == 0,
                                   .protocol = (uint8_t)a->protocol,
                                   .port = a->port,
                                   .reason = reason,
                                   .address = a->address}};
    memcpy(ref->key.host, d.host, sizeof(ref->key.host));
    /* A connection to port 53 is not an attempt in itself; each question in it is one. */
    bool is_asked = !reason && d.must_ask;
    if (!is_asked && (reason || a->protocol != NETWORK_TCP || a->port != DNS_PORT))
        note(b, ref);
    if (reason)
        return ADMIT_DENIED;
    b->owner->descriptors += a->descriptors;
    b->egress->descriptors += a->descriptors;
    return is_asked ? ADMIT_ASK : ADMITTED;
}

void box_settle(
    struct box *b, struct record_ref *ref, uint32_t reason, const struct address *to)
{
    ref->key.is_allowed = reason == 0;
    ref->key.reason = reason;
    if (to)
        ref->key.address = *to;
    note(b, ref);
}

void box_release(struct box *b, unsigned descriptors)
{
    account_disconnect(&b->account);
    b->owner->descriptors -= descriptors;
    b->egress->descriptors -= descriptors;
}

void box_deny_name(struct box *b, enum network_protocol protocol, const char *name,
    uint16_t port, uint32_t reason)
{
    struct record_ref ref = {
        .key = {.protocol = (uint8_t)protocol, .port = port, .reason = reason}};
    size_t len = strlen(name);
    if (len < sizeof(ref.key.host))
        memcpy(ref.key.host, name, len + 1);
    note(b, &ref);
}

void box_count(struct box *b, struct record_ref *ref, enum direction d, uint64_t bytes)
{
    account_move(&b->account, d, bytes);
    record_move(&b->record, ref, d == SENT ? bytes : 0, d == RECEIVED ? bytes : 0);
}

unsigned box_slot(const struct packet_ends *ends)
{
    const uint8_t *to = ends->destination.bytes + 12;
    uint32_t mix = (uint32_t)ends->source_port * 31 + ends->destination_port +
                   ((uint32_t)to[2] << 8) + to[3];
    return mix % TABLE;
}
