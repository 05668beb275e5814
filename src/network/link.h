/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Shared by the files of the hub: hub.c has the thread and the links, question.c the questions
 * of boxes, tally.c the tallies. These functions are called with the hub's lock held. */

#include "network/hub.h"

/* A question has a number of the hub: the next egress counts its tokens from the beginning, and
 * a late answer must not be taken for the answer to another question. */
struct link_question {
    uint64_t number; /* 0: free */
    uint64_t token;  /* of egress */
};

struct network_link {
    struct network_hub *hub;
    struct network_link *next; /* in the hub's list, while the hub has a reference */
    unsigned refs;
    int fd; /* our end of the channel; -1 when it is over */
    bool is_over;
    uint32_t last_token;
    struct network_policy_message policy; /* in force */
    struct network_row *rows;             /* NETWORK_MAX_ROWS, or NULL when none came */
    size_t row_count;                     /* that came since the last NETWORK_RECORD */
    struct network_tally *tallies;
    struct network_asker *asker; /* or NULL */
    struct link_question questions[NETWORK_MAX_QUESTIONS];
    unsigned question_count;
    uint64_t wait_begin_ns;
    uint64_t waited_ns; /* in waits that ended before wait_begin_ns */
};

/* --- hub.c */

/* Never blocks. */
int link_send(struct network_link *link, const void *message, size_t size);

/* --- question.c */

/* False when egress breaks the rules: too many at a time, or a token twice. */
bool question_ask(struct network_link *link, const struct network_question *q);

/* Ignores a question that was answered meanwhile. */
void question_withdraw(struct network_link *link, const struct network_answer *message);
void question_withdraw_all(struct network_link *link);

/* How long the box has waited for answers since the link began. */
uint64_t question_waited_ns(const struct network_link *link);

/* --- tally.c: what happens on a link, for all its tallies */

void tally_wake_all(struct network_link *link);
void tally_tried(struct network_link *link, const struct network_row *row);

/* A record is complete: its rows, which came before it, are in link->rows. */
void tally_record(struct network_link *link, const struct network_record *record);
void tally_approval(struct network_link *link, json_t *approval);

/* Another egress has taken over. Attempts that the last one had not reported are lost. */
void tally_new_egress(struct network_link *link);

/* Nothing more will come over the link. */
void tally_link_over(struct network_link *link);
