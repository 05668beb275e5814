/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Admission: the budgets of the machine and a bounded queue in front of the boxes. Keys share
 * every budget; docs/load.md has the rules. An owner is the index of a key, or -1 for callers
 * without one. Any thread may call any function. */

#include "base/err.h"
#include "lang/limits.h"
#include "state/keys.h"

#include <stdbool.h>
#include <stdint.h>

struct admit_options {
    const struct keys *keys; /* borrowed */
    uint32_t concurrency;    /* runs at one time, at least 1 */
    uint32_t queue;          /* runs that may wait at one time */
    uint32_t wait_ms;        /* longest wait */
    uint64_t memory_mb;      /* MiB promised to boxes at one time */
    uint64_t reserve_mb;     /* the part of memory_mb that sessions may hold */
    uint64_t processes;      /* processes that all boxes together may really have */
    uint32_t sessions;
    uint32_t sessions_per_key;
};

/* The budgets. A run needs a place, memory and processes. An exec needs only a place, because
 * its box has the rest already. A session needs everything but a place. */
enum admit_budget {
    BUDGET_PLACES,
    BUDGET_MEMORY, /* in MiB */
    BUDGET_PROCESSES,
    BUDGET_SESSION_MEMORY, /* the parts of the two above that sessions may hold */
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
void admit_free(struct admit *admit); /* all tickets must be given back */

/* The state of a ticket: it has nothing, waits in the queue, has its place, lost its place in
 * the queue to another key, or was turned away because the server stops. */
enum admit_place { PLACE_NONE, PLACE_WAITING, PLACE_TAKEN, PLACE_EVICTED, PLACE_CLOSED };

/* A run or exec that was admitted or waits for admission. Must not move while it waits. */
struct admit_ticket {
    int owner;
    struct admit_need need;
    uint64_t began_ns; /* when admit_begin() was called */
    uint64_t enter_ns; /* when it was admitted */
    double queue_ms;   /* time between the two */
    struct admit_ticket *next;
    uint64_t unfit_ms; /* since when it holds back its key's other waiters; 0: not yet */
    bool is_back;      /* it had a place before; it stays in the queue even if that is full */
    int wake_fd;
    int also_fd; /* admit_wait() returns -EINTR when this is readable; -1 for none */
    enum admit_place place;
};

/* Takes a place at once, or one in the queue. ERR_BUSY when the queue or a
 * quota is full. ERR_INVALID when the need is more than this key can ever have. After 0, call
 * admit_wait(), on any thread, or admit_drop(). */
int admit_begin(struct admit *admit, int owner, const struct admit_need *need,
    struct admit_ticket *ret, struct err *err);

/* Waits for the place. ERR_BUSY when it took longer than wait_ms (0: as configured) or when
 * another key took its place in the queue. -ECANCELED when cancel_fd became readable (-1 for
 * none). */
int admit_wait(struct admit *admit, struct admit_ticket *ticket, int cancel_fd,
    uint32_t wait_ms, struct err *err);

/* admit_try() takes a further place, for work that can run in parallel: only when one is free
 * and no run of the same key waits. The caller gives it back when admit_is_wanted(): a run of
 * the same key waits, or any run waits while this key is above its share. */
bool admit_try(
    struct admit *admit, int owner, const struct admit_need *need, struct admit_ticket *ret);
bool admit_is_wanted(struct admit *admit, const struct admit_ticket *ticket);

/* The needs of the largest box that one key can have. */
struct box_need admit_largest_box(const struct admit *admit);

/* Gives the place back. cpu_ms is charged to the CPU budget of the key. */
void admit_leave(struct admit *admit, const struct admit_ticket *ticket, double cpu_ms);

/* Gives up the place of the ticket, or its place in the queue. It may have neither. */
void admit_drop(struct admit *admit, struct admit_ticket *ticket);

/* Puts the ticket back into the queue after admit_drop(), before the other waiters of its key,
 * even if the queue is full. wake_fd is negative, or becomes readable when admit_wait() will
 * not sleep. */
void admit_resume(struct admit *admit, struct admit_ticket *ticket);

/* Reserves memory and processes for a session, which needs no place. ERR_BUSY when there is no
 * room. admit_give_back() may return the reservation in parts. */
int admit_reserve(
    struct admit *admit, int owner, const struct admit_need *need, struct err *err);
void admit_give_back(struct admit *admit, int owner, const struct admit_need *need);

/* Whether sessions of other keys should end to make room for this need, or, when need is NULL,
 * for a waiting run. True when the need is within the share of its key and sessions of keys
 * above their share hold the room. ret_excess has an entry for each key and one more:
 * ret_excess[owner + 1] becomes how far that key is above its share, 0 for not at all. */
bool admit_find_excess(
    struct admit *admit, int owner, const struct admit_need *need, uint64_t *ret_excess);

/* For a session and for work in one. admit_check() counts a run for the rate of the key and
 * checks its quotas; admit_charge() charges the CPU time afterwards. */
int admit_check(struct admit *admit, int owner, struct err *err);
void admit_charge(struct admit *admit, int owner, double cpu_ms);

/* Call about twice a second. Lets runs pass that another run of their key has held back long
 * enough. */
void admit_tick(struct admit *admit);

/* Admits no request from now on; waiters get ERR_UNAVAILABLE. */
void admit_close(struct admit *admit);

struct admit_state {
    uint32_t running;
    uint32_t running_max; /* most at one time, lent places included */
    uint32_t waiting;
    uint32_t concurrency;
    uint32_t queue;
    uint64_t memory_promised_mb;
    uint64_t memory_mb;
    uint64_t processes_promised;
    uint64_t processes; /* most that may be promised */
    uint64_t refused;   /* since the start */
};
void admit_get_state(struct admit *admit, struct admit_state *ret);

/* The budgets that one key holds now. */
struct admit_use {
    uint32_t running; /* places */
    uint32_t waiting;
    uint32_t sessions;
    uint64_t memory_mb; /* promised to its boxes */
    uint64_t processes;
    bool has_cpu_budget;
    double cpu_s_left; /* of cpu_s_per_hour; below 0 when more was used */
};
void admit_get_use(struct admit *admit, int owner, struct admit_use *ret);
