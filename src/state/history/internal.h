/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The records of the history, for the files of this folder. One lock, history->lock, covers all
 * lists and every run with its events. */

#include "base/answer.h"
#include "base/id.h"
#include "state/events.h"
#include "state/history/history.h"
#include "state/keys.h"
#include "store/run_store.h"

#include <pthread.h>

enum { HISTORY_BUCKETS = 4096 };

/* The runs of one owner. */
struct share {
    struct share *next;
    char name[KEY_NAME_MAX];
    uint64_t bytes;      /* of all its runs */
    uint64_t live_bytes; /* of these, events of runs that are not over */
    size_t count;
    struct history_run *oldest, *newest; /* finished runs */
    struct history_run *large; /* the run whose answer is larger than the bound, or NULL */
};

struct history_run {
    struct history *history;
    struct history_run *bucket_next;
    struct history_run *older, *newer;
    struct share *share;
    struct history_run *share_older, *share_newer;
    unsigned refs; /* one belongs to the table */
    char id[ID_MAX];
    char owner[KEY_NAME_MAX];
    enum run_mode kind;
    enum result_encoding encoding;
    enum run_status status;
    bool is_listed;
    bool is_over;
    bool from_store;
    bool is_large;          /* the answer is large: this run is a user of it, not a keeper */
    bool is_stored;         /* the store has the answer, or will have it */
    bool is_shed;           /* its events and answer were dropped */
    const char *language;   /* borrowed; "" for none */
    int64_t created_ms;     /* since 1970 */
    int64_t finished_ms;    /* since 1970; 0 until it is over */
    uint64_t started_at_ms; /* by clock_ms(); 0: not yet */
    int64_t wall_ms;        /* from its start to its end; -1: it did not start */
    bool exited;
    int exit_code;            /* valid when exited */
    uint64_t over_at_ms;      /* by clock_ms() */
    uint64_t unread_since_ms; /* by clock_ms(); when the last reader left */
    unsigned readers;
    int cancel_fd;
    int stdin_read_fd, stdin_write_fd; /* -1: none, or no longer */
    bool stdin_is_taken;               /* a client is writing */
    struct answer *request; /* or NULL. The run is a user of it until it is over, so that the
                               ledger bounds requests of runs that cannot be forgotten; then a
                               keeper */
    struct answer *answer;
    size_t kept_bytes; /* bytes of the answer that count for memory_bytes */
    struct run_events events;
    pthread_cond_t changed;
};

struct history {
    struct history_options options;
    pthread_mutex_t lock;
    struct history_run *buckets[HISTORY_BUCKETS];
    struct history_run *oldest, *newest;
    struct share *shares;
    size_t count;
    uint64_t bytes;
    uint64_t store_expired_ms;
    bool closed;
};

/* kept.c: which runs are kept in memory. Runs are in a hash table by id and in a list by age;
 * finished runs are also in a list of their owner. The lock is held, except for kept_new(). */
struct history_run *kept_new(struct history *h, const char *id, const char *owner);
void kept_free(struct history_run *run); /* a run that was never listed */
void kept_unref(struct history_run *run);
void kept_drop_answer(struct history_run *run);
void kept_drop_request(struct history_run *run);
void kept_keep_request(struct history_run *run); /* when the run has just become over */
struct history_run *kept_find(const struct history *h, const char *id);
void kept_list(struct history *h, struct history_run *run);
void kept_list_over(struct history_run *run); /* when the run has just become over */

/* Removes a run from the table. Holders of a reference may go on using the run. But readers of
 * events would keep its events and answer for as long as they like, so these are dropped and
 * the readers get -ESTALE. */
void kept_unlist(struct history *h, struct history_run *run);

/* Adds `bytes`, which may be negative, to what a listed run holds: to its answer, or to its
 * events, whose change is complete. */
void kept_count(struct history_run *run, int64_t bytes);
void kept_count_events(struct history_run *run, int64_t bytes);

/* Removes results while there are too many runs or bytes. It removes them from the owner that
 * has most, so that no owner loses results because of another one. The owner's oldest finished
 * run goes first; without a finished run, the oldest event of a run that is not over. `latest`
 * stays: its readers have not seen it yet, and its size is bounded. */
void kept_make_room(struct history *h, const struct history_run *latest);

/* The same for an event of the run, but owners that have less than the run's own lose nothing:
 * the run's oldest events go instead. */
void kept_make_event_room(struct history_run *run);

/* stdin.c: closes the standard input. Lock held. */
void stdin_close(struct history_run *run);

/* stored.c: runs in the store. Without the lock: these functions may wait for the disk. */
int stored_promise(struct history *h, const struct history_run *run, struct err *err);
int stored_find(struct history *h, const char *id, struct history_owner owner,
    struct history_run **ret, struct err *err);
/* The run as a row without answer, which borrows from the run. Lock held, or by the thread that
 * executes the run. */
struct run_row stored_row(const struct history_run *run, enum run_status status);
void stored_put(struct history_run *run, enum run_status status, struct answer *answer);

/* The answer that replaces one that is too large to keep. */
struct answer *stored_notice(const struct history_run *run, enum run_status status, size_t len);

int history_no_memory(struct err *err);
