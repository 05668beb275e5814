/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The one way from a run_spec to a result that every front door takes: admission, engine,
 * counters. */

#include "state/state.h"

/* Who asks and how the run is followed. */
struct service_call {
    const struct run_spec *spec;
    int owner;                     /* index of the key, -1 for none */
    const struct run_watch *watch; /* its cancel_fd also ends the wait for a place */
};

/* Admission, memory and history from config, keys and machine. */
int service_open(struct state *state, struct err *err);
void service_close(struct state *state);

/* Runs it on this thread. Returns 0 with the result (cancelled ones included), or an error;
 * with ERR_BUSY *ret_retry_s says when to come again. result must be initialised. */
int service_run(struct state *state, const struct service_call *call, struct run_result *result,
    unsigned *ret_retry_s, struct err *err);

/* The same on a thread of its own, told to `run`. Fails at once when the spec is bad or there
 * is no place in the queue. On success takes the spec's content and the reference to run. */
int service_run_later(struct state *state, struct run_spec *spec, int owner,
    enum result_encoding encoding, struct history_run *run, unsigned *ret_retry_s,
    struct err *err);

/* Called twice a second. */
void service_tick(struct state *state);
