/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The one way from a run_spec to a result, which every front door takes: admission, engine,
 * counters. */

#include "state/state.h"

/* A run, its owner, and how the caller follows it. */
struct service_call {
    struct run_spec *spec;         /* service_run() sets spec->owner */
    int owner;                     /* index of the key, -1 for none */
    const struct run_watch *watch; /* its cancel_fd also ends the wait for a place */
};

/* Opens admission, memory ledgers, sessions and history, from config, keys and machine. */
int service_open(struct state *state, struct err *err);
void service_close(struct state *state);

/* Runs it on this thread. Returns 0 with the result, also of a cancelled run, or an error. With
 * ERR_BUSY, err->retry_s says when to try again. result must be initialised. */
int service_run(struct state *state, const struct service_call *call, struct run_result *result,
    struct err *err);

/* Runs it on a thread of its own and reports to `record`. Fails at once when the spec is
 * invalid or the queue is full. Takes the content of the spec, also on failure; takes the
 * reference to record on success. */
int service_run_later(struct state *state, struct run_spec *spec, int owner,
    enum result_encoding encoding, struct history_run *record, struct err *err);

/* Call about twice a second. */
void service_tick(struct state *state);
