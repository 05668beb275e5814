/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The server's side of network channels (proto/network.h). One thread, the *hub*, owns the
 * channels of all boxes: it gives each hermes-egress the policy in force and takes the records.
 * The thread starts with the first box that asks for a network.
 *
 * A *link* is the channel of one box, or of a session and its copies, which share a network. A
 * *tally* follows what is tried over a link from one moment to another: during a run, or during
 * one exec of a session. Any thread may call any function; a tally belongs to one thread.
 *
 * Links are in hub.c, tallies in tally.c, questions of boxes in question.c, the runs and
 * sessions that they belong to in asker.c. */

#include "base/err.h"
#include "network/report.h"
#include "proto/network.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct network_link;
struct network_tally;

/* Sums over all links since the start. */
struct network_totals {
    uint64_t allowed;            /* connections */
    uint64_t denied[REASON_END]; /* attempts, by reason */
    uint64_t sent;
    uint64_t received;
    uint64_t more; /* attempts that records only count */
};

/* The run or session that a question of a box in mode "ask" belongs to. */
struct network_asker {
    char *owner;   /* name of the key, or "" */
    char *run;     /* id, or "" */
    char *session; /* id, or "" */
    json_t *box;   /* what the box can reach, for the reviewer; or NULL */
};

/* Copies the texts and takes the JSON. The caller frees it. */
struct network_asker *network_asker_new(
    const char *owner, const char *run, const char *session, json_t *box);
struct network_asker *network_asker_copy(const struct network_asker *asker); /* or NULL */
void network_asker_free(struct network_asker *asker);                        /* accepts NULL */

/* Answers questions of boxes. Both are called with the hub's lock held and must not block. The
 * link is given with a reference. A question has a number that no other one ever has. */
struct network_answerer {
    void *context;
    void (*ask)(void *context, struct network_link *link, uint64_t number,
        const struct network_row *what);
    void (*withdraw)(void *context, struct network_link *link, uint64_t number);
    uint64_t wait_max_ns; /* of one tally; 0: no limit */
};

struct network_hub {
    pthread_mutex_t lock; /* of everything, links and tallies included */
    pthread_t thread;
    bool is_running;
    bool is_stopping;
    int epoll_fd;
    int stop_fd; /* eventfd */
    struct network_link *first;
    struct network_totals totals;
    struct network_answerer answerer; /* without functions: no question is asked */
    uint64_t last_question;           /* its number */
    struct network_rows packet;       /* the buffer that the thread reads into */
};

/* Sets the functions that answer questions. Call before the first link. */
void network_hub_answer(struct network_hub *hub, const struct network_answerer *answerer);

/* Starts nothing. */
void network_hub_init(struct network_hub *hub);

/* Ends the thread and all links. No tally may be left. */
void network_hub_done(struct network_hub *hub);

void network_hub_totals(struct network_hub *hub, struct network_totals *ret);

/* Makes a channel with the policy in it. *ret_fd is the end for the spawner, which the caller
 * closes when it was sent. The caller owns a reference to the link. `asker` is copied; NULL:
 * there are no questions. */
int network_link_open(struct network_hub *hub, const struct network_policy *policy,
    const struct network_asker *asker, struct network_link **ret, int *ret_fd, struct err *err);

/* The run or session of the link's box, for the answerer. Never NULL for a link with a
 * question. Valid as long as the link. */
const struct network_asker *network_link_asker(const struct network_link *link);

/* Answers a question, unless it was withdrawn. Reason 0: approved; `is_lasting` as in
 * proto/network.h. `approval` is listed in the reports of now ({id, state, effect}); it is
 * taken, and may be NULL. */
void network_link_answer(struct network_link *link, uint64_t number, uint32_t reason,
    bool is_lasting, json_t *approval);
struct network_link *network_link_ref(struct network_link *link); /* accepts NULL */

/* After the last reference is gone the hub still takes the last record, for the totals. */
void network_link_unref(struct network_link *link); /* accepts NULL */

/* Sends another policy to hermes-egress. After an error the old one stays. */
int network_link_change(
    struct network_link *link, const struct network_policy *policy, struct err *err);

/* Waits until the policy that was sent last is in force. After an error that is not known. */
int network_link_confirm(struct network_link *link, struct err *err);

/* Whether nothing listens at the other end any more: the box is gone, or has no kit. */
bool network_link_is_over(struct network_link *link);

/* Begins to follow a link. `is_new`: the link has just been opened, and everything counts;
 * otherwise only attempts from now on count. */
struct network_tally *network_tally_new(struct network_link *link, bool is_new);

/* Becomes readable when network_tally_next() has a row, or a wait has begun or ended. */
int network_tally_fd(const struct network_tally *tally);

/* The next attempt of a kind that was not tried before; false when there is none now. */
bool network_tally_next(struct network_tally *tally, struct network_row *ret);

/* How long the box has waited for answers since the tally began, in ns; whether it waits now.
 */
uint64_t network_tally_waited(struct network_tally *tally, bool *ret_is_waiting);

/* Waits a short time for the last record of the tally; attempts before it have come then, too.
 * `is_over`: the box is gone, so the record is on its way; otherwise egress is asked for it. */
void network_tally_finish(struct network_tally *tally, bool is_over);

/* Frees the tally and returns its report, which the caller owns. Without the record the report
 * is incomplete. */
struct network_report *network_tally_end(struct network_tally *tally);

/* Ends the tally without a report. Accepts NULL. */
void network_tally_drop(struct network_tally *tally);
