/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Admission: the budgets of the machine, and a bounded queue in front of the boxes. Keys share
 * every budget; docs/load.md has the rules. Any thread may call any function. */

#include "base/err.h"
#include "lang/limits.h"
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
    uint64_t processes;      /* that all boxes may really have */
    uint32_t sessions;
    uint32_t sessions_per_key;
};

/* What is shared. A run needs a place, memory and processes; an exec needs a place, for its box
 * has the rest already; a session needs everything but a place. */
enum admit_budget {
    BUDGET_PLACES,
    BUDGET_MEMORY, /* in MiB */
    BUDGET_PROCESSES,
    BUDGET_SESSION_MEMORY, /* the part of these two that sessions may hold */
    BUDGET_SESSION_PROCESSES,
    BUDGET_SESSIONS,
    BUDGETS
};

struct admit_need {
    uint64_t of[BUDGETS];
};
struct admit_need admit_need_run(const struct box_need *box);
struct admit_need admit_need_exec(void);
struct admit_need admit_need_session(const struct box_need *box);

struct admit;

struct admit *admit_new(const struct admit_options *options);
void admit_free(struct admit *admit); /* nobody may be inside any more */

enum admit_place { PLACE_NONE, PLACE_WAITING, PLACE_TAKEN, PLACE_EVICTED, PLACE_CLOSED };

/* A run or exec that was let in, or that waits for it. Must not move while it waits. */
struct admit_ticket {
    int owner;
    struct admit_need need;
    uint64_t began_ns; /* when it came */
    uint64_t enter_ns; /* when it was let in */
    double queue_ms;   /* how long that took */
    struct admit_ticket *next;
    uint64_t unfit_ms; /* since when it holds back its key's list, 0: not yet */
    bool is_back;      /* it had a place before, and stays in the queue however full that is */
    int wake_fd;
    int also_fd; /* admit_wait() returns -EINTR when this is readable; -1 for none */
    enum admit_place place;
};

/* Takes a place at once or one in the queue. ERR_BUSY with *ret_retry_s when the queue or a
 * quota is full, ERR_INVALID when the need is more than this key can ever have. After 0 comes
 * admit_wait(), on any thread, or admit_drop(). */
int admit_begin(struct admit *admit, int owner, const struct admit_need *need,
    struct admit_ticket *ret, unsigned *ret_retry_s, struct err *err);

/* Waits for the place. ERR_BUSY when it took too long (wait_ms, 0: as configured) or another
 * key had more right to the queue; -ECANCELED when cancel_fd became readable (-1 for none). */
int admit_wait(struct admit *admit, struct admit_ticket *ticket, int cancel_fd,
    uint32_t wait_ms, unsigned *ret_retry_s, struct err *err);

/* A place beside one that the caller has, for what can be done at the same time: only when one
 * is free, and no run of the same key waits. It is to be given back once it is wanted: such a
 * run waits, or any run, while this key is above its share. */
bool admit_try(
    struct admit *admit, int owner, const struct admit_need *need, struct admit_ticket *ret);
bool admit_is_wanted(struct admit *admit, const struct admit_ticket *ticket);

/* The most that a box of one key can ever need. */
struct box_need admit_largest_box(const struct admit *admit);

/* Gives the place back. cpu_ms is what the run used, for the key's budget. */
void admit_leave(struct admit *admit, const struct admit_ticket *ticket, double cpu_ms);

/* Gives up whatever the ticket has: a place, one in the queue, or nothing. */
void admit_drop(struct admit *admit, struct admit_ticket *ticket);

/* After admit_drop() the ticket waits again, before the others of its key, whatever the queue
 * allows. wake_fd is readable when admit_wait() will not sleep, or negative. */
void admit_resume(struct admit *admit, struct admit_ticket *ticket);

/* A box that outlives a run, without a place: a session's. ERR_BUSY when there is no room.
 * Parts of it may be given back one after the other. */
int admit_reserve(struct admit *admit, int owner, const struct admit_need *need,
    unsigned *ret_retry_s, struct err *err);
void admit_give_back(struct admit *admit, int owner, const struct admit_need *need);

/* Whether sessions of other keys are to end so that this need has room; without one, so that a
 * waiting run has. That is so when the need is within the share of its key, and the room is
 * held by sessions of keys above theirs. ret_excess[owner + 1], which has an entry for each key
 * and one more, becomes how far each key is above its share; 0 for not at all. */
bool admit_find_excess(
    struct admit *admit, int owner, const struct admit_need *need, uint64_t *ret_excess);

/* A session or work in one: counts as a run for the key's rate, and for its CPU budget
 * afterwards. */
int admit_check(struct admit *admit, int owner, unsigned *ret_retry_s, struct err *err);
void admit_charge(struct admit *admit, int owner, double cpu_ms);

/* About once a second: a run that held back others for long enough is passed over. */
void admit_tick(struct admit *admit);

/* Nobody is let in from now on; who waits gets ERR_UNAVAILABLE. */
void admit_close(struct admit *admit);

struct admit_state {
    uint32_t running;
    uint32_t running_max; /* at one time, lent places included */
    uint32_t waiting;
    uint32_t concurrency;
    uint32_t queue;
    uint64_t memory_promised_mb;
    uint64_t memory_mb;
    uint64_t processes_promised;
    uint64_t processes; /* that may be promised */
    uint64_t refused;   /* ever */
};
void admit_get_state(struct admit *admit, struct admit_state *ret);
