/* SPDX-License-Identifier: Apache-2.0 */

/* Questions for names: port 53, over UDP and TCP, whatever address the box sends them to. Only
 * names that the policy permits are asked outside. Addresses that are closed are taken out of
 * the answers; the others are pinned to the name before the box learns them. */

#include "egress/dns.h"
#include "egress/egress.h"

#include "base/alloc.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct lookup {
    TAILQ_ENTRY(lookup) entry; /* of box->lookups */
    struct box *box;
    struct conn *conn;       /* or NULL: over UDP */
    struct packet_ends ends; /* over UDP */
    struct dns_query query;
};

/* Where an answer goes. */
struct asker {
    struct box *box;
    struct conn *conn;
    const struct packet_ends *ends;
};

enum { LENGTH = 2 }; /* bytes before each message over TCP */

static void send_answer(const struct asker *to, uint8_t *message, size_t len)
{
    if (!to->conn) {
        inject_datagram(to->box, to->ends, message + LENGTH, len);
        return;
    }
    message[0] = (uint8_t)(len >> 8);
    message[1] = (uint8_t)len;
    ssize_t size = (ssize_t)len + LENGTH;
    if (send(to->conn->inside.fd, message, (size_t)size, MSG_DONTWAIT | MSG_NOSIGNAL) != size)
        tcp_end(to->conn, true); /* the box asks but does not read the answers */
}

static void answer(
    const struct asker *to, const struct dns_query *query, const struct dns_answer *what)
{
    uint8_t message[LENGTH + DNS_MAX_MESSAGE];
    send_answer(to, message, dns_build(message + LENGTH, query, what, to->conn != NULL));
}

static void answer_code(
    const struct asker *to, const struct dns_query *query, enum dns_code code)
{
    answer(to, query, &(struct dns_answer){.code = code});
}

static void deny(const struct asker *to, const struct dns_query *query, uint32_t reason)
{
    box_deny_name(to->box, NETWORK_DNS, query->name, DNS_PORT, reason);
    answer_code(to, query, reason == REASON_LOOKUP_LIMIT ? DNS_SERVER_FAILED : DNS_NO_NAME);
}

/* --- answers from outside */

static void answer_addresses(
    const struct asker *to, const struct dns_query *query, const struct resolver_answer *found)
{
    struct box *b = to->box;
    struct policy_view view = box_view(b);
    struct address good[RESOLVER_MAX_ADDRESSES];
    uint32_t reason = 0;
    size_t count = 0;
    for (size_t i = 0; i < found->count; i++) {
        uint32_t why = policy_decide_answer(&view, &found->addresses[i]);
        if (why == 0)
            good[count++] = found->addresses[i];
        else
            reason = why;
    }
    if (count == 0 && reason) {
        deny(to, query, reason);
        return;
    }
    for (size_t i = 0; i < count; i++)
        pins_add(&b->pins, &good[i], query->name, found->ttl_s, view.now_ms);
    answer(to, query,
        &(struct dns_answer){
            .code = DNS_NO_ERROR, .ttl_s = found->ttl_s, .count = count, .addresses = good});
}

static void answer_records(
    const struct asker *to, const struct dns_query *query, const struct resolver_answer *found)
{
    uint8_t message[LENGTH + DNS_MAX_MESSAGE];
    ssize_t n = -EBADMSG;
    if (found->raw)
        n = dns_copy(message + LENGTH, query, found->raw, found->raw_len, to->conn != NULL);
    if (n < 0)
        answer_code(to, query, DNS_SERVER_FAILED);
    else
        send_answer(to, message, (size_t)n);
}

static void answer_found(
    const struct asker *to, const struct dns_query *query, const struct resolver_answer *found)
{
    struct policy_view view = box_view(to->box);
    uint32_t reason = policy_decide_name(&view, query->name); /* the policy may have changed
                                                               * meanwhile */
    if (!reason && policy_name_is_asked(&view, query->name))
        reason = REASON_NOT_LISTED;
    if (reason)
        deny(to, query, reason);
    else if (found->status == RESOLVER_NO_NAME)
        answer_code(to, query, DNS_NO_NAME);
    else if (found->status == RESOLVER_NO_DATA)
        answer_code(to, query, DNS_NO_ERROR);
    else if (found->status == RESOLVER_FAILED)
        answer_code(to, query, DNS_SERVER_FAILED);
    else if (query->type == DNS_A || query->type == DNS_AAAA)
        answer_addresses(to, query, found);
    else
        answer_records(to, query, found);
}

static void unlink_lookup(struct lookup *l)
{
    TAILQ_REMOVE(&l->box->lookups, l, entry);
    account_answered(&l->box->account);
    if (l->conn)
        l->conn->lookup = NULL;
}

static void done(void *context, const struct resolver_answer *found)
{
    struct lookup *l = context;
    const struct asker to = {.box = l->box, .conn = l->conn, .ends = &l->ends};
    unlink_lookup(l);
    answer_found(&to, &l->query, found);
    if (to.conn && to.conn->state == CONN_ASKING)
        loop_queue(&to.conn->inside); /* the next question may be there */
    free(l);
}

void lookup_end(struct lookup *l)
{
    resolver_forget(l->box->egress->resolver, l);
    unlink_lookup(l);
    free(l);
}

void lookup_end_all(struct box *b)
{
    for (struct lookup *l = TAILQ_FIRST(&b->lookups), *next; l; l = next) {
        next = TAILQ_NEXT(l, entry);
        lookup_end(l);
    }
}

/* --- questions */

static void ask(const struct asker *to, const struct dns_query *query)
{
    struct box *b = to->box;
    if (!account_ask(&b->account, b->egress->now_ms)) {
        deny(to, query, REASON_LOOKUP_LIMIT);
        return;
    }
    struct lookup *l = xcalloc(1, sizeof(*l));
    l->box = b;
    l->conn = to->conn;
    l->query = *query;
    if (to->conn)
        to->conn->lookup = l;
    else
        l->ends = *to->ends;
    TAILQ_INSERT_TAIL(&b->lookups, l, entry);
    if (resolver_ask(b->egress->resolver, query->name, query->type, b->owner->number, done, l) <
        0) {
        unlink_lookup(l);
        free(l);
        answer_code(to, query, DNS_SERVER_FAILED);
    }
}

/* Answers with a stand-in address: the upstream proxy resolves the name, or the name is not
 * approved yet. */
static void answer_stand_in(const struct asker *to, const struct dns_query *query)
{
    struct dns_answer what = {.code = DNS_NO_ERROR, .ttl_s = DNS_MAX_TTL};
    struct address address;
    if (query->type == DNS_A) {
        address = pins_stand_in(&to->box->pins, query->name, to->box->egress->now_ms);
        what.count = 1;
        what.addresses = &address;
    }
    answer(to, query, &what);
}

static void take_question(const struct asker *to, const struct dns_query *query)
{
    struct box *b = to->box;
    const struct network_ceiling *ceiling = &b->egress->ceiling;
    struct policy_view view = box_view(b);
    uint32_t reason = policy_decide_name(&view, query->name);
    if (reason != REASON_NO_NETWORK && account_is_spent(&b->account))
        reason = REASON_BYTE_LIMIT;
    if (reason)
        deny(to, query, reason);
    else if (policy_name_is_asked(&view, query->name) ||
             (ceiling->upstream_port && ceiling->upstream_resolves))
        answer_stand_in(to, query);
    else if (dns_type_is_empty(query->type) ||
             (query->type == DNS_AAAA && !(b->has_v6 && route_has_v6(b->egress))))
        answer_code(to, query, DNS_NO_ERROR);
    else
        ask(to, query);
}

/* Returns false for bytes that are not a question. */
static bool take_message(const struct asker *to, const uint8_t *data, size_t len)
{
    struct dns_query query;
    int r = dns_parse(&query, data, len);
    if (r == 0)
        take_question(to, &query);
    else if (r == -EBADMSG)
        answer_code(to, &query, DNS_BAD_FORMAT);
    return r == 0 || r == -EBADMSG;
}

void lookup_datagram(
    struct box *b, const struct packet_ends *ends, const uint8_t *data, size_t len)
{
    const struct asker to = {.box = b, .ends = ends};
    (void)take_message(&to, data, len);
}

/* Takes one question of a connection. Returns false when no whole one is there. */
static bool take_next(struct conn *c)
{
    struct egress *e = c->box->egress;
    uint8_t message[LENGTH + DNS_MAX_MESSAGE];
    ssize_t n = recv(c->inside.fd, message, sizeof(message), MSG_PEEK | MSG_DONTWAIT);
    if (n < 0 && errno == EAGAIN) {
        c->inside.is_readable = false;
        return false;
    }
    size_t len = n < LENGTH ? 0 : (size_t)(message[0] << 8 | message[1]);
    bool is_whole = n >= LENGTH && (size_t)n >= len + LENGTH;
    if (n <= 0 || len > DNS_MAX_MESSAGE || (!is_whole && c->inside.is_hung_up)) {
        tcp_end(c, n != 0);
        return false;
    }
    if (!is_whole) {
        c->inside.is_readable = false;
        return false;
    }
    (void)recv(c->inside.fd, message, len + LENGTH, MSG_DONTWAIT);
    c->deadline_ms = e->now_ms + QUESTION_MS;
    c->box->turn_left -= STEP_COST;
    const struct asker to = {.box = c->box, .conn = c};
    if (!take_message(&to, message + LENGTH, len))
        tcp_end(c, true);
    return true;
}

/* One question after the other: while an answer is awaited, the next waits in the socket. */
enum served lookup_serve_conn(struct conn *c)
{
    while (c->state == CONN_ASKING && !c->lookup) {
        if (c->box->turn_left <= 0)
            return SERVED_MORE;
        if (!take_next(c))
            break;
    }
    return SERVED_ALL;
}
