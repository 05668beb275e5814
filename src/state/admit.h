/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Who may run now. A bounded queue in front of the boxes: first come first served within a key,
 * round robin between keys, never more memory promised than the machine has. Any thread may
 * call any function. */

#include "base/err.h"
#include "state/keys.h"

#include <stdbool.h>
#include <stdint.h>

struct admit_options {
    const struct keys *keys; /* borrowed; owner -1 is a caller without a key */
    uint32_t concurrency;    /* runs at one time, at least 1 */
    uint32_t queue;          /* runs that may wait */
    uint32_t wait_ms;        /* longest wait */
    uint64_t memory_mb;      /* promised at one time */
    uint64_t reserve_mb;     /* of that, to sessions */
};

struct admit;

struct admit *admit_new(const struct admit_options *options);
void admit_free(struct admit *admit); /* nobody may be inside any more */

enum admit_place { PLACE_NONE, PLACE_WAITING, PLACE_TAKEN, PLACE_EVICTED, PLACE_CLOSED };

/* A run that was let in, or that waits for it. Must not move while it waits. */
struct admit_ticket {
    int owner;
    uint64_t memory_mb;
    uint64_t began_ns; /* when it came */
    uint64_t enter_ns; /* when it was let in */
    double queue_ms;   /* how long that took */
    struct admit_ticket *next;
    int wake_fd;
    enum admit_place place;
};

/* Takes a place at once or one in the queue. ERR_BUSY with *ret_retry_s when the queue or a
 * quota is full. After 0 comes admit_wait(), on any thread. */
int admit_begin(struct admit *admit, int owner, uint64_t memory_mb, struct admit_ticket *ret,
    unsigned *ret_retry_s, struct err *err);

/* Waits for the place. ERR_BUSY when it took too long (wait_ms, 0: as configured) or another
 * key had more right to the queue; -ECANCELED when cancel_fd became readable (-1 for none). */
int admit_wait(struct admit *admit, struct admit_ticket *ticket, int cancel_fd,
    uint32_t wait_ms, unsigned *ret_retry_s, struct err *err);

/* A place beside one that the caller has, for what can be done at the same time: only when one
 * is free and nobody waits. It is to be given back once somebody does. */
bool admit_try(struct admit *admit, int owner, uint64_t memory_mb, struct admit_ticket *ret);
bool admit_is_wanted(struct admit *admit);

/* Gives the place back. cpu_ms is what the run used, for the key's budget. */
void admit_leave(struct admit *admit, const struct admit_ticket *ticket, double cpu_ms);

/* Memory for a box that outlives a run, without a place: a session's. ERR_BUSY when there is
 * none, or a quota of the key is used up. */
int admit_reserve(
    struct admit *admit, int owner, uint64_t memory_mb, unsigned *ret_retry_s, struct err *err);
void admit_give_back(struct admit *admit, uint64_t memory_mb);

/* Work in such a box: counts as a run for the key's rate, and for its CPU budget afterwards. */
int admit_check(struct admit *admit, int owner, unsigned *ret_retry_s, struct err *err);
void admit_charge(struct admit *admit, int owner, double cpu_ms);

/* Nobody is let in from now on; who waits gets ERR_UNAVAILABLE. */
void admit_close(struct admit *admit);

struct admit_state {
    uint32_t running;
    uint32_t waiting;
    uint32_t concurrency;
    uint32_t queue;
    uint64_t memory_promised_mb;
    uint64_t memory_mb;
    uint64_t refused; /* ever */
};
void admit_get_state(struct admit *admit, struct admit_state *ret);
