/* SPDX-License-Identifier: Apache-2.0 */

/* The network channel of a box (proto/network.h): policies come in, records go out. The server
 * may be slow: what does not fit waits here, and nothing more is read from it meanwhile, so it
 * cannot make egress keep much. */

#include "egress/egress.h"

#include "base/alloc.h"
#include "base/log.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { MESSAGES = 16 }; /* read in one turn: other boxes wait meanwhile */

struct letter {
    STAILQ_ENTRY(letter) entry;
    size_t len;
    uint8_t bytes[];
};

static bool send_now(struct box *b, const void *data, size_t len)
{
    return send(b->channel.fd, data, len, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)len;
}

static void send_later(struct box *b, const void *data, size_t len)
{
    struct letter *letter = xmalloc(sizeof(*letter) + len);
    letter->len = len;
    memcpy(letter->bytes, data, len);
    STAILQ_INSERT_TAIL(&b->letters, letter, entry);
}

static void forget_first(struct box *b)
{
    struct letter *letter = STAILQ_FIRST(&b->letters);
    STAILQ_REMOVE_HEAD(&b->letters, entry);
    free(letter);
}

void channel_drop_letters(struct box *b)
{
    while (!STAILQ_EMPTY(&b->letters))
        forget_first(b);
}

/* Sends what waits. Returns false when the channel has ended. */
static bool flush(struct box *b)
{
    for (struct letter *letter; (letter = STAILQ_FIRST(&b->letters));) {
        if (!send_now(b, letter->bytes, letter->len)) {
            b->channel.is_writable = false;
            return errno == EAGAIN || errno == ENOBUFS || errno == ENOMEM;
        }
        forget_first(b);
    }
    return true;
}

void channel_hello(struct box *b)
{
    const struct network_message hello = {.kind = NETWORK_HELLO};
    send_later(b, &hello, sizeof(hello));
    (void)flush(b);
}

/* An event for clients that watch; the record has it too, so it may be lost. */
void channel_tried(struct box *b, const struct record_ref *ref)
{
    struct {
        uint32_t kind;
        uint32_t count;
        struct network_row row;
    } message = {.kind = NETWORK_TRIED, .count = 1, .row = ref->key};
    message.row.count = 1;
    if (STAILQ_EMPTY(&b->letters))
        (void)send_now(b, &message, sizeof(message));
}

bool channel_is_full(const struct box *b)
{
    return !STAILQ_EMPTY(&b->letters);
}

void channel_ask(struct box *b, uint64_t token, const struct network_row *row)
{
    struct network_question question = {.kind = NETWORK_ASKED, .token = token, .row = *row};
    question.row.count = 1;
    send_later(b, &question, sizeof(question));
    (void)flush(b);
}

void channel_withdraw(struct box *b, uint64_t token)
{
    const struct network_answer withdrawal = {.kind = NETWORK_WITHDRAWN, .token = token};
    send_later(b, &withdrawal, sizeof(withdrawal));
    (void)flush(b);
}

void channel_record(struct box *b, uint32_t token)
{
    struct record *r = &b->record;
    static struct network_rows message;
    for (size_t at = 0; at < r->count; at += message.count) {
        size_t count = r->count - at;
        if (count > NETWORK_ROWS_PER_MESSAGE)
            count = NETWORK_ROWS_PER_MESSAGE;
        message.kind = NETWORK_ROWS;
        message.count = (uint32_t)count;
        memcpy(message.rows, r->rows + at, count * sizeof(message.rows[0]));
        send_later(
            b, &message, offsetof(struct network_rows, rows) + count * sizeof(message.rows[0]));
    }
    const struct network_record record = {.kind = NETWORK_RECORD,
        .token = token,
        .limit_hit = r->is_limit_hit,
        .sent = r->sent,
        .received = r->received,
        .more = r->more};
    send_later(b, &record, sizeof(record));
    record_clear(r);
    (void)flush(b);
}

static bool take(struct box *b, const struct network_policy_message *message, size_t len)
{
    if (len == sizeof(*message) && message->kind == NETWORK_POLICY) {
        box_set_policy(b, &message->policy);
    } else if (len == sizeof(struct network_message) && message->kind == NETWORK_SNAPSHOT) {
        channel_record(b, message->reserved); /* in the place of the token */
    } else if (len == sizeof(struct network_answer) && message->kind == NETWORK_ANSWER) {
        struct network_answer answer;
        memcpy(&answer, message, sizeof(answer));
        ask_answer(b, &answer);
    } else {
        log_event(LOG_WARN, "unreadable message about a box: it has no network", (char *)NULL);
        return false;
    }
    return true;
}
_Static_assert(offsetof(struct network_policy_message, reserved) ==
                   offsetof(struct network_message, token),
    "both messages begin alike");

bool channel_read(struct box *b)
{
    static struct network_policy_message message;
    for (int i = 0; i < MESSAGES && STAILQ_EMPTY(&b->letters); i++) {
        ssize_t n = recv(b->channel.fd, &message, sizeof(message), MSG_DONTWAIT | MSG_TRUNC);
        if (n < 0) {
            b->channel.is_readable = false;
            return errno == EAGAIN || errno == EINTR;
        }
        if (n == 0 || !take(b, &message, (size_t)n))
            return false;
    }
    return true;
}

/* Without its server the box has no policy: nothing passes any more. */
static enum served lose(struct box *b)
{
    if (b->is_leaving) {
        box_bury(b);
        return SERVED_ALL;
    }
    channel_drop_letters(b);
    loop_close(b->egress, &b->channel);
    box_empty(b);
    return SERVED_ALL;
}

enum served channel_serve(struct source *s)
{
    struct box *b = s->owner;
    b->turn_left -= STEP_COST;
    if (!flush(b))
        return lose(b);
    if (b->is_finished && STAILQ_EMPTY(&b->letters)) {
        box_bury(b);
        return SERVED_ALL;
    }
    if (!b->is_leaving && s->is_readable && !channel_read(b))
        return lose(b);
    bool has_more = !b->is_leaving && s->is_readable && STAILQ_EMPTY(&b->letters);
    return has_more ? SERVED_MORE : SERVED_ALL;
}
