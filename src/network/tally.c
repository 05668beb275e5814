/* SPDX-License-Identifier: Apache-2.0 */

/* Tallies: what is tried over a link between two moments. A record of egress covers the time
 * since the record before it. So a tally begins and ends with a record that it asks for. */

#include "network/link.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum {
    RECORD_MS = 2000,   /* for a record, after it was asked for or the box has ended */
    CONFIRM_MS = 10000, /* for a record that shows that a policy is in force */
    CONFIRM_RETRY_S = 1,
    TRIED_MAX = 32, /* attempts that wait for network_tally_next(); more are not events */
};

struct network_tally {
    struct network_link *link; /* a reference */
    struct network_tally *next;
    uint32_t begin_token; /* counts the records after the one of this number; 0: all records */
    uint32_t end_token;   /* the record that ends it; 0: none was asked for */
    bool is_done;
    int wake_fd; /* eventfd */
    struct network_row tried[TRIED_MAX];
    size_t tried_first, tried_count;
    struct network_report *report;
    uint64_t waited_ns; /* of the link, when it began */
};

static void poke(int fd)
{
    const uint64_t one = 1;
    ssize_t n = write(fd, &one, sizeof(one));
    (void)n; /* fails only when it is readable already */
}

/* The functions below are called with the hub's lock held. */

void tally_wake_all(struct network_link *link)
{
    for (struct network_tally *t = link->tallies; t; t = t->next)
        poke(t->wake_fd);
}

static void finish_tally(struct network_tally *tally)
{
    tally->is_done = true;
    poke(tally->wake_fd);
}

static void ask_record(struct network_link *link, uint32_t token)
{
    const struct network_message message = {.kind = NETWORK_SNAPSHOT, .token = token};
    (void)link_send(link, &message, sizeof(message));
}

void tally_tried(struct network_link *link, const struct network_row *row)
{
    for (struct network_tally *t = link->tallies; t; t = t->next) {
        if (t->is_done || t->tried_count == TRIED_MAX)
            continue;
        t->tried[(t->tried_first + t->tried_count++) % TRIED_MAX] = *row;
        poke(t->wake_fd);
    }
}

static void add_record(struct network_tally *t, const struct network_link *link,
    const struct network_record *record)
{
    struct network_report *report = t->report;
    for (size_t i = 0; i < link->row_count; i++)
        network_report_add(report, &link->rows[i]);
    report->sent += record->sent;
    report->received += record->received;
    report->more += record->more;
    report->limit_hit = report->limit_hit || record->limit_hit;
}

/* The last record of a box has the token 0. */
void tally_record(struct network_link *link, const struct network_record *record)
{
    for (struct network_tally *t = link->tallies; t; t = t->next) {
        if (t->is_done)
            continue;
        if (!t->begin_token)
            add_record(t, link, record);
        if (record->token && t->begin_token == record->token)
            t->begin_token = 0;
        if (!record->token || t->end_token == record->token)
            finish_tally(t);
    }
}

void tally_approval(struct network_link *link, json_t *approval)
{
    for (struct network_tally *t = link->tallies; t; t = t->next)
        network_report_add_approval(t->report, approval);
}

void tally_new_egress(struct network_link *link)
{
    for (struct network_tally *t = link->tallies; t; t = t->next) {
        if (!t->is_done)
            t->report->is_complete = false;
        if (t->begin_token)
            ask_record(link, t->begin_token);
        if (t->end_token && !t->is_done)
            ask_record(link, t->end_token);
    }
}

void tally_link_over(struct network_link *link)
{
    for (struct network_tally *t = link->tallies; t; t = t->next) {
        if (!t->is_done && !link->is_over)
            t->report->is_complete = false;
        finish_tally(t);
    }
}

/* From here on the functions take the lock themselves. */

/* Without a descriptor for wake-ups there are no events, and the record is looked for once. */
struct network_tally *network_tally_new(struct network_link *link, bool is_new)
{
    struct network_tally *tally = xcalloc(1, sizeof(*tally));
    tally->link = network_link_ref(link);
    tally->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    (void)pthread_mutex_lock(&link->hub->lock);
    tally->report = network_report_new(link->policy.policy.mode);
    if (!is_new) {
        tally->begin_token = ++link->last_token;
        ask_record(link, tally->begin_token);
    }
    tally->waited_ns = question_waited_ns(link);
    tally->is_done = link->is_over;
    tally->report->is_complete = !link->is_over;
    tally->next = link->tallies;
    link->tallies = tally;
    (void)pthread_mutex_unlock(&link->hub->lock);
    return tally;
}

int network_tally_fd(const struct network_tally *tally)
{
    return tally->wake_fd;
}

bool network_tally_next(struct network_tally *tally, struct network_row *ret)
{
    struct network_hub *hub = tally->link->hub;
    uint64_t count;
    (void)pthread_mutex_lock(&hub->lock);
    ssize_t n = read(tally->wake_fd, &count, sizeof(count));
    (void)n;
    bool is_there = tally->tried_count > 0;
    if (is_there) {
        *ret = tally->tried[tally->tried_first];
        tally->tried_first = (tally->tried_first + 1) % TRIED_MAX;
        if (--tally->tried_count > 0)
            poke(tally->wake_fd);
    }
    (void)pthread_mutex_unlock(&hub->lock);
    return is_there;
}

uint64_t network_tally_waited(struct network_tally *tally, bool *ret_is_waiting)
{
    struct network_link *link = tally->link;
    (void)pthread_mutex_lock(&link->hub->lock);
    uint64_t waited = question_waited_ns(link) - tally->waited_ns;
    uint64_t max = link->hub->answerer.wait_max_ns;
    bool is_spent = max && waited >= max; /* from now on the box waits in its own time */
    *ret_is_waiting = link->question_count > 0 && !is_spent;
    waited = is_spent ? max : waited;
    (void)pthread_mutex_unlock(&link->hub->lock);
    return waited;
}

static bool is_done(struct network_tally *tally)
{
    (void)pthread_mutex_lock(&tally->link->hub->lock);
    bool done = tally->is_done;
    (void)pthread_mutex_unlock(&tally->link->hub->lock);
    return done;
}

static void await_record(struct network_tally *tally, uint64_t patience_ms)
{
    uint64_t until_ms = clock_ms() + patience_ms;
    while (!is_done(tally)) {
        struct pollfd wake = {.fd = tally->wake_fd, .events = POLLIN};
        uint64_t now = clock_ms();
        uint64_t count;
        if (now >= until_ms)
            return;
        if (poll(&wake, 1, (int)(until_ms - now)) == 1) {
            ssize_t n = read(tally->wake_fd, &count, sizeof(count));
            (void)n;
        }
    }
}

static void ask_last_record(struct network_tally *tally)
{
    struct network_link *link = tally->link;
    (void)pthread_mutex_lock(&link->hub->lock);
    tally->end_token = ++link->last_token;
    if (!tally->is_done)
        ask_record(link, tally->end_token);
    (void)pthread_mutex_unlock(&link->hub->lock);
}

void network_tally_finish(struct network_tally *tally, bool is_over)
{
    if (!is_over)
        ask_last_record(tally);
    await_record(tally, RECORD_MS);
}

/* Egress reads the messages of a channel in their order: when it answers this question for a
 * record, the policy before it counts. */
int network_link_confirm(struct network_link *link, struct err *err)
{
    struct network_tally *tally = network_tally_new(link, true);
    ask_last_record(tally);
    await_record(tally, CONFIRM_MS);
    bool is_confirmed = is_done(tally);
    network_tally_drop(tally);
    if (is_confirmed)
        return 0;
    return err_retry(err,
        err_set(err, ERR_UNAVAILABLE, ETIMEDOUT,
            "hermes-egress has not confirmed the change of the network in time; try again"),
        CONFIRM_RETRY_S);
}

struct network_report *network_tally_end(struct network_tally *tally)
{
    struct network_link *link = tally->link;
    (void)pthread_mutex_lock(&link->hub->lock);
    struct network_report *report = take_ptr(tally->report);
    if (!tally->is_done || tally->begin_token)
        report->is_complete = false;
    report->mode = link->policy.policy.mode;
    (void)pthread_mutex_unlock(&link->hub->lock);
    network_tally_drop(tally);
    return report;
}

void network_tally_drop(struct network_tally *tally)
{
    if (!tally)
        return;
    struct network_link *link = tally->link;
    (void)pthread_mutex_lock(&link->hub->lock);
    struct network_tally **at = &link->tallies;
    while (*at != tally)
        at = &(*at)->next;
    *at = tally->next;
    (void)pthread_mutex_unlock(&link->hub->lock);
    network_report_free(tally->report);
    close_fd(&tally->wake_fd);
    free(tally);
    network_link_unref(link);
}
