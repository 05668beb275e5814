/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Work that continues after the reply: asynchronous and streamed runs, judgements and execs. It
 * has a thread of its own and a record in the history, from which clients read its events and
 * its answer. A kind of work embeds a struct later as its first member. */

#include "base/answer.h"
#include "state/state.h"

struct later {
    struct state *state;
    int owner;                  /* index of the key, -1 for none */
    struct history_run *record; /* NULL: no client asks for the result */
    struct purse purse;         /* memory of the request and of its output */

    /* Does the work and makes the answer, whose user the caller becomes; NULL without a
     * record. */
    enum run_status (*work)(struct later *later, struct answer **ret_answer);

    /* Frees the work and the struct that embeds this one. */
    void (*free)(struct later *later);
};

/* Counts the memory of the thread and the record, and `bytes` of the request. state, owner,
 * work and free are filled in; the struct must not move any more. ERR_UNAVAILABLE when memory
 * is short. The caller calls later_free(), also after an error. Work of the server itself is
 * not counted. */
int later_count(struct later *later, size_t bytes, struct err *err);

/* Starts the thread, which calls later_free() at the end. Takes the caller's reference to
 * `record`. On failure the caller keeps it and calls later_free(). */
int later_start(struct later *later, struct history_run *record, struct err *err);

void later_free(struct later *later);

/* The longest wait for a place in milliseconds: no client holds a connection open for it. */
enum { LATER_WAIT_MS = 3600 * 1000 };

/* Logs that Hermes failed to do the work. */
void later_log(const struct later *later, const char *what, const struct err *err);
