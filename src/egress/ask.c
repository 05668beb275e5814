/* SPDX-License-Identifier: Apache-2.0 */

/* Attempts that wait for an approval (mode NETWORK_ASK). Egress asks the server about each
 * destination once, however many attempts wait for it, and the answer holds for all of them. A
 * name without an approval was answered with a stand-in address; name servers are asked for it
 * only after the approval. Whatever is approved, closed addresses and addresses of the host
 * stay closed. While the server is gone, or a new egress runs, all waiting attempts stay where
 * they are. */

#include "egress/dns.h"
#include "egress/egress.h"

#include "base/alloc.h"

#include <stdlib.h>
#include <string.h>

enum {
    REFUSALS_KEPT = 32,   /* refused destinations that a box remembers */
    REFUSALS_MAX = 256,   /* over the life of a box; after that no question is asked */
    DENIED_MS = 60000,    /* how long a denied destination is not asked about again */
    UNANSWERED_MS = 5000, /* the same for a question without an answer */
};

enum question_state {
    QUESTION_ASKED,
    QUESTION_RESOLVING, /* it is approved, and its name is looked up */
    QUESTION_REFUSED,   /* remembered; no attempt waits for it */
    QUESTION_GRANTED,   /* remembered, like QUESTION_REFUSED */
};

struct question {
    TAILQ_ENTRY(question) entry; /* of box->questions */
    struct box *box;
    enum question_state state;
    uint64_t token;
    uint64_t until_ms; /* of QUESTION_REFUSED and QUESTION_GRANTED */
    uint32_t reason;   /* of QUESTION_REFUSED */
    unsigned waiting;
    bool is_yes;   /* it needs no answer: it was granted before */
    uint16_t type; /* that is looked up */
    struct network_row what;
};

static bool is_about(const struct question *q, const struct network_row *what)
{
    return q->what.protocol == what->protocol && q->what.port == what->port &&
           memcmp(&q->what.address, &what->address, sizeof(what->address)) == 0 &&
           strcmp(q->what.host, what->host) == 0;
}

static void end(struct question *q)
{
    if (q->state == QUESTION_RESOLVING)
        resolver_forget(q->box->egress->resolver, q);
    TAILQ_REMOVE(&q->box->questions, q, entry);
    free(q);
}

void ask_free(struct box *b)
{
    struct question *next;
    for (struct question *q = TAILQ_FIRST(&b->questions); q; q = next) {
        next = TAILQ_NEXT(q, entry);
        end(q);
    }
}

static struct question *add(
    struct box *b, const struct network_row *what, enum question_state state)
{
    struct question *q = xcalloc(1, sizeof(*q));
    q->box = b;
    q->what = *what;
    q->state = state;
    TAILQ_INSERT_TAIL(&b->questions, q, entry);
    return q;
}

/* Keeps an answer for a while. The oldest makes room. */
static void remember(
    struct question *about, enum question_state state, uint32_t reason, uint64_t for_ms)
{
    struct box *b = about->box;
    struct question *oldest = NULL;
    unsigned kept = 0;
    struct question *q;
    TAILQ_FOREACH(q, &b->questions, entry)
    {
        bool is_kept = q->state == QUESTION_REFUSED || q->state == QUESTION_GRANTED;
        kept += is_kept;
        if (is_kept && !oldest)
            oldest = q;
    }
    if (kept >= REFUSALS_KEPT)
        end(oldest);
    q = add(b, &about->what, state);
    q->reason = reason;
    q->until_ms = b->egress->now_ms + for_ms;
}

/* --- the end of a question */

/* A connection that waits for the answer, or NULL. */
static struct conn *next_conn(const struct question *q)
{
    struct conn *c;
    TAILQ_FOREACH(c, &q->box->conns, entry)
    if (c->question == q)
        return c;
    return NULL;
}

static struct flow *next_flow(const struct question *q)
{
    struct flow *f;
    TAILQ_FOREACH(f, &q->box->flows, entry)
    if (f->question == q)
        return f;
    return NULL;
}

static void refuse(struct question *q, uint32_t reason)
{
    struct conn *c;
    struct flow *f;
    while ((c = next_conn(q)))
        tcp_refuse(c, reason);
    while ((f = next_flow(q)))
        udp_refuse(f, reason);
    end(q);
}

/* Even after an approval the address must be open, and must not be one of the host's own. */
static void proceed(struct question *q, const struct address *to)
{
    struct policy_view view = box_view(q->box);
    const struct network_ceiling *ceiling = &q->box->egress->ceiling;
    bool is_name = ceiling->upstream_resolves && pins_is_stand_in(to);
    uint32_t reason = is_name ? 0 : policy_decide_approved(&view, to);
    if (!reason && !is_name)
        reason = box_check_way(q->box->egress, q->what.protocol, to);
    if (reason) {
        refuse(q, reason);
        return;
    }
    struct conn *c;
    struct flow *f;
    while ((c = next_conn(q)))
        tcp_proceed(c, to);
    while ((f = next_flow(q)))
        udp_proceed(f, to);
    end(q);
}

static void look_up(struct question *q, uint16_t type);

static void found(void *context, const struct resolver_answer *answer)
{
    struct question *q = context;
    struct policy_view view = box_view(q->box);
    uint32_t reason = REASON_NO_ROUTE;
    q->state = QUESTION_ASKED; /* the resolver has forgotten it */
    for (size_t i = 0; i < answer->count; i++) {
        uint32_t why = policy_decide_approved(&view, &answer->addresses[i]);
        if (why == 0) {
            proceed(q, &answer->addresses[i]);
            return;
        }
        reason = why;
    }
    bool has_v6 = q->box->has_v6 && route_has_v6(q->box->egress);
    if (q->type == DNS_A && reason == REASON_NO_ROUTE && has_v6)
        look_up(q, DNS_AAAA);
    else
        refuse(q, reason);
}

static void look_up(struct question *q, uint16_t type)
{
    struct box *b = q->box;
    q->type = type;
    q->state = QUESTION_RESOLVING;
    if (resolver_ask(b->egress->resolver, q->what.host, type, b->owner->number, found, q) < 0) {
        q->state = QUESTION_ASKED;
        refuse(q, REASON_LOOKUP_LIMIT);
    }
}

static void approve(struct question *q)
{
    const struct network_ceiling *ceiling = &q->box->egress->ceiling;
    bool is_name = pins_is_stand_in(&q->what.address);
    if (is_name && !(ceiling->upstream_port && ceiling->upstream_resolves))
        look_up(q, DNS_A);
    else
        proceed(q, &q->what.address);
}

/* --- asking */

/* Finds the question about a destination, and forgets old ones. */
static struct question *find(struct box *b, const struct network_row *what)
{
    uint64_t now = b->egress->now_ms;
    struct question *q;
    struct question *next;
    for (q = TAILQ_FIRST(&b->questions); q; q = next) {
        bool is_kept = q->state == QUESTION_REFUSED || q->state == QUESTION_GRANTED;
        next = TAILQ_NEXT(q, entry);
        if (is_kept && now >= q->until_ms)
            end(q);
        else if (q->state != QUESTION_RESOLVING && !q->is_yes && is_about(q, what))
            return q;
    }
    return NULL;
}

static unsigned count_open(const struct box *b)
{
    unsigned count = 0;
    const struct question *q;
    TAILQ_FOREACH(q, &b->questions, entry)
    /* end() takes a question out of this list before it frees the question. The analyser does
     * not see that: to it, q->box and `b` are two boxes.
     * NOLINTNEXTLINE(clang-analyzer-unix.Malloc) */
    count += q->state == QUESTION_ASKED || q->state == QUESTION_RESOLVING;
    return count;
}

/* The server learns no stand-in address: it means nothing outside the box. */
static void send_question(struct question *q)
{
    struct network_row row = q->what;
    row.is_allowed = 0;
    row.reason = REASON_NOT_LISTED;
    if (pins_is_stand_in(&row.address))
        row.address = (struct address){0};
    q->token = ++q->box->egress->last_token;
    channel_ask(q->box, q->token, &row);
}

uint32_t ask_hold(struct box *b, const struct network_row *what, struct question **ret)
{
    struct question *q = find(b, what);
    if (q && q->state == QUESTION_REFUSED)
        return q->reason;
    bool is_granted = q && q->state == QUESTION_GRANTED;
    if (!q || is_granted) {
        if (count_open(b) >= NETWORK_MAX_QUESTIONS || b->refused >= REFUSALS_MAX ||
            b->channel.fd < 0 || (!is_granted && channel_is_full(b)))
            return REASON_QUESTION_LIMIT;
        q = add(b, what, QUESTION_ASKED);
        q->is_yes = is_granted;
        if (!is_granted)
            send_question(q);
    }
    q->waiting++;
    *ret = q;
    return 0;
}

void ask_begin(struct question *q)
{
    if (q->is_yes)
        approve(q);
}

void ask_leave(struct question *q)
{
    if (--q->waiting)
        return;
    if (q->state == QUESTION_ASKED && !q->is_yes && q->box->channel.fd >= 0) {
        channel_withdraw(q->box, q->token);
        q->box->refused++;
    }
    end(q);
}

static struct question *find_asked(const struct box *b, uint64_t token)
{
    struct question *q;
    TAILQ_FOREACH(q, &b->questions, entry)
    if (q->state == QUESTION_ASKED && !q->is_yes && q->token == token)
        return q;
    return NULL;
}

void ask_answer(struct box *b, const struct network_answer *answer)
{
    struct question *q = find_asked(b, answer->token);
    if (!q)
        return; /* no attempt waits for it any more */
    bool is_known =
        answer->reason >= REASON_NOT_APPROVED && answer->reason <= REASON_QUESTION_LIMIT;
    uint32_t reason = answer->reason && !is_known ? REASON_NOT_APPROVED : answer->reason;
    if (reason) {
        b->refused++;
        remember(q, QUESTION_REFUSED, reason,
            reason == REASON_NOT_APPROVED ? DENIED_MS : UNANSWERED_MS);
        refuse(q, reason);
        return;
    }
    if (answer->is_lasting)
        remember(q, QUESTION_GRANTED, 0, NETWORK_LASTING_MS);
    approve(q);
}

void ask_again(struct box *b)
{
    struct question_list old = TAILQ_HEAD_INITIALIZER(old);
    TAILQ_CONCAT(&old, &b->questions, entry);
    for (struct question *q; (q = TAILQ_FIRST(&old));) {
        struct conn *c;
        struct flow *f;
        TAILQ_REMOVE(&old, q, entry);
        TAILQ_INSERT_HEAD(&b->questions, q, entry);
        if (q->state == QUESTION_ASKED && !q->is_yes)
            channel_withdraw(b, q->token);
        q->is_yes = true; /* no attempt can join it */
        while ((c = next_conn(q)))
            tcp_retry(c);
        while ((f = next_flow(q))) {
            f->question = NULL;
            udp_end(f);
        }
        end(q);
    }
}
