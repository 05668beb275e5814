/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Everything a server shares, and the one way from a run_spec to a result that every front door
 * takes: admission, engine, counters. */

#include "base/ledger.h"
#include "run/engine.h"
#include "state/admit.h"
#include "state/config.h"
#include "state/history.h"
#include "state/keys.h"
#include "state/metrics.h"

#include <stdatomic.h>

struct sessions;

struct service {
    struct config config;
    struct keys keys;
    struct runtime_registry runtimes;
    struct engine *engine;
    struct admit *admit;
    struct history *history;
    struct run_store *store; /* or NULL */
    struct sessions *sessions;
    uint64_t terminals_max; /* of all sessions */
    struct metrics metrics;
    uint64_t started_ms;
    atomic_bool stopping;
    atomic_int background; /* runs on threads of their own */
    struct ledger *ledger; /* memory for requests, outputs and replies under way */
    struct ledger *spills; /* disk for outputs that do not fit into an answer */
    uint64_t memory_max;   /* bytes of the server itself, counted or not */
    uint64_t store_failures;
};

/* Who asks and how the run is followed. */
struct service_call {
    const struct run_spec *spec;
    int owner;                     /* index of the key, -1 for none */
    const struct run_watch *watch; /* its cancel_fd also ends the wait for a place */
};

/* Waits while a spawner that died is being replaced. -ECANCELED when cancel_fd (or -1) becomes
 * readable. */
int service_wait_for_spawner(struct service *service, int cancel_fd, struct err *err);

/* Admission, memory and history from config, keys and machine. */
int service_open(struct service *service, struct err *err);
void service_close(struct service *service);

struct history_owner service_owner(const struct service *service, int owner);

/* The name of a key, "" for none. */
const char *service_owner_name(const struct service *service, int owner);

/* admit_begin(), and the end of idle sessions that hold what the run has a right to. */
int service_admit(struct service *service, int owner, const struct admit_need *need,
    struct admit_ticket *ret, unsigned *ret_retry_s, struct err *err);

/* Runs it on this thread. Returns 0 with the result (cancelled ones included), or an error;
 * with ERR_BUSY *ret_retry_s says when to come again. result must be initialised. */
int service_run(struct service *service, const struct service_call *call,
    struct run_result *result, unsigned *ret_retry_s, struct err *err);

/* The same on a thread of its own, told to `run`. Fails at once when the spec is bad or there
 * is no place in the queue. On success takes the spec's content and the reference to run. */
int service_run_later(struct service *service, struct run_spec *spec, int owner,
    enum result_encoding encoding, struct history_run *run, unsigned *ret_retry_s,
    struct err *err);

/* The error when the ledger refuses. Requests that wait, outputs that grow and replies that
 * nobody reads take memory for as long as their clients like, so all of them are counted in it
 * before they take any. */
int service_full(struct err *err);

/* Once a second. */
void service_tick(struct service *service);
