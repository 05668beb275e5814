/* SPDX-License-Identifier: Apache-2.0 */

/* Questions of boxes in mode "ask": whether they may reach a destination. The answerer decides.
 * While a question is open, the box waits outside its own time. */

#include "network/link.h"

#include "base/clock.h"

/* The functions below are called with the hub's lock held. */

uint64_t question_waited_ns(const struct network_link *link)
{
    return link->waited_ns + (link->question_count ? clock_ns() - link->wait_begin_ns : 0);
}

/* The place of a number, or a free one (0). */
static struct link_question *find_question(struct network_link *link, uint64_t number)
{
    for (size_t i = 0; i < NETWORK_MAX_QUESTIONS; i++) {
        if (link->questions[i].number == number)
            return &link->questions[i];
    }
    return NULL;
}

static struct link_question *find_token(struct network_link *link, uint64_t token)
{
    for (size_t i = 0; i < NETWORK_MAX_QUESTIONS; i++) {
        if (link->questions[i].number && link->questions[i].token == token)
            return &link->questions[i];
    }
    return NULL;
}

static void close_question(struct network_link *link, struct link_question *q)
{
    *q = (struct link_question){0};
    link->waited_ns = question_waited_ns(link);
    link->wait_begin_ns = clock_ns();
    link->question_count--;
    tally_wake_all(link);
}

static void withdraw(struct network_link *link, struct link_question *q)
{
    const struct network_answerer *answerer = &link->hub->answerer;
    uint64_t number = q->number;
    close_question(link, q);
    if (answerer->withdraw) {
        link->refs++;
        answerer->withdraw(answerer->context, link, number);
    }
}

void question_withdraw_all(struct network_link *link)
{
    for (size_t i = 0; i < NETWORK_MAX_QUESTIONS; i++) {
        if (link->questions[i].number)
            withdraw(link, &link->questions[i]);
    }
}

bool question_ask(struct network_link *link, const struct network_question *q)
{
    const struct network_answerer *answerer = &link->hub->answerer;
    struct link_question *place = find_question(link, 0);
    if (!q->token || !place || find_token(link, q->token) || !network_row_is_valid(&q->row) ||
        q->row.protocol == NETWORK_DNS)
        return false;
    if (!link->asker || !answerer->ask) {
        const struct network_answer no = {
            .kind = NETWORK_ANSWER, .reason = REASON_NO_APPROVER, .token = q->token};
        return link_send(link, &no, sizeof(no)) == 0;
    }
    *place = (struct link_question){.number = ++link->hub->last_question, .token = q->token};
    if (link->question_count++ == 0)
        link->wait_begin_ns = clock_ns();
    tally_wake_all(link);
    link->refs++;
    answerer->ask(answerer->context, link, place->number, &q->row);
    return true;
}

void question_withdraw(struct network_link *link, const struct network_answer *message)
{
    struct link_question *q = find_token(link, message->token);
    if (q)
        withdraw(link, q);
}

/* From here on the functions take the lock themselves. */

const struct network_asker *network_link_asker(const struct network_link *link)
{
    return link->asker;
}

/* An answer that cannot be sent does not count: the attempts wait until the link ends. */
void network_link_answer(struct network_link *link, uint64_t number, uint32_t reason,
    bool is_lasting, json_t *approval)
{
    (void)pthread_mutex_lock(&link->hub->lock);
    struct link_question *q = number ? find_question(link, number) : NULL;
    if (q) {
        const struct network_answer answer = {.kind = NETWORK_ANSWER,
            .reason = reason,
            .token = q->token,
            .is_lasting = is_lasting};
        if (approval)
            tally_approval(link, approval);
        (void)link_send(link, &answer, sizeof(answer));
        close_question(link, q);
    }
    (void)pthread_mutex_unlock(&link->hub->lock);
    json_decref(approval);
}
