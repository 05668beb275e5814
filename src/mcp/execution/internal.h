/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The inside of executions, for the files of this folder. */

#include "approval/approval.h"
#include "base/ledger.h"
#include "mcp/execution/execution.h"

#include <pthread.h>

struct pause {
    char id[ID_MAX];
    unsigned number;
    json_t *interaction;
    execution_reply *reply; /* NULL: decided */
    void *context;
    char approval[ID_MAX]; /* of the effect that it is about; or "" */
    struct pause *next;
};

struct execution {
    struct executions *all;
    unsigned refs;
    int owner;
    char id[ID_MAX];
    int cancel_fd;
    bool is_done;
    uint64_t began_ms, done_ms;
    json_t *outcome;
    json_t *kept; /* object: name to content */
    int also_cancel_fd;
    struct purse purse; /* of the outcome */
    struct pause *pauses, **last;
    unsigned pause_count;
    struct approval_attendance attendance; /* place: "" for none */
    struct execution *next;
};

struct executions {
    struct mcp *mcp;
    pthread_mutex_t lock;
    pthread_cond_t news;
    struct execution *first;
    unsigned running;
    bool is_stopping;
};

static inline void executions_lock(struct executions *all)
{
    (void)pthread_mutex_lock(&all->lock);
}

static inline void executions_unlock(struct executions *all)
{
    (void)pthread_mutex_unlock(&all->lock);
}

/* pause.c. The lock is held, except for pauses_end(). pauses_follow() adds a pause for each
 * pending question and removes the pauses whose question was decided elsewhere. */
void pauses_follow(struct execution *e);

/* The first that is not decided, or NULL. */
const struct pause *pauses_open(const struct execution *e);

/* Whether one has this id. *ret_number is then its number. */
bool pauses_have(const struct execution *e, const char *id, unsigned *ret_number);

/* Cancels all that are not decided: the execution is over. */
void pauses_end(struct execution *e);
void pauses_free(struct execution *e);
