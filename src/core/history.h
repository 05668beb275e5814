/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Runs that someone may ask for: their state, their events while they go on, their answer for
 * a configured time. Bounded in number and bytes: the oldest finished ones of the owner that
 * has most go first. With a store, answers and the promise of an answer outlive the server. Any
 * thread may call any function. */

#include "base/answer.h"
#include "base/buf.h"
#include "base/err.h"
#include "core/engine.h"
#include "core/result.h"

#include <stdbool.h>
#include <stdint.h>

struct history;
struct history_run;
struct run_store;

struct history_options {
    struct run_store *store; /* borrowed; NULL: memory only */
    struct ledger *ledger;   /* borrowed; counts what is read from the store; or NULL */
    uint64_t ttl_ms;
    uint64_t max_bytes;    /* of the store */
    uint64_t memory_bytes; /* of what is kept in memory */
    uint64_t resume_grace_ms;
};

enum run_mode {
    RUN_SYNC,     /* its client waits for the answer; no events are kept */
    RUN_ASYNC,    /* goes on whoever leaves */
    RUN_STREAMED, /* is cancelled when nobody reads it for the grace period */
};

/* A key. */
struct history_owner {
    const char *name; /* "" for none */
    int index;        /* in the ledger */
};

struct history *history_new(const struct history_options *options);
void history_free(struct history *history); /* no run may be referenced any more */

/* A new run under this id; the caller owns a reference. Async and streamed runs are written to
 * the store first. */
int history_add(struct history *history, const char *id, struct history_owner owner,
    enum run_mode kind, enum result_encoding encoding, struct history_run **ret,
    struct err *err);

/* The run of this owner. ERR_NOT_FOUND when there is none, or it is another's; ERR_UNAVAILABLE
 * when there is no memory for what the store has of it. The caller owns a reference. */
int history_find(struct history *history, const char *id, struct history_owner owner,
    struct history_run **ret, struct err *err);
struct history_run *history_ref(struct history_run *run);
void history_unref(struct history_run *run); /* NULL is fine */

/* Takes back a run that never began: nobody will find it. */
void history_forget(struct history_run *run);

/* What happens to a run, told by whoever executes it. The caller stays a user of the answer. */
void history_started(struct history_run *run);
void history_output(
    struct history_run *run, enum run_stream stream, const char *data, size_t len);
/* Another event, `json` on one line. Of a very large one only a note is kept. */
void history_event(struct history_run *run, const char *name, const char *json);
void history_finish(struct history_run *run, enum run_status status, struct answer *answer);

/* Whether nobody reads events of it. */
bool history_is_quiet(const struct history_run *run);

/* Becomes readable when the run is to be cancelled. Owned by the run; -1 for one that is over.
 */
int history_cancel_fd(const struct history_run *run);

/* False when it is over already. */
bool history_cancel(struct history_run *run);

/* Cancels all that are under way. */
void history_cancel_all(struct history *history);

/* The answer, or {id,status} while there is none; the caller is its user. ERR_NOT_FOUND when
 * the run was just forgotten, ERR_UNAVAILABLE when there is no memory for it. */
int history_answer(struct history_run *run, struct answer **ret, struct err *err);

const char *history_id(const struct history_run *run);

/* How far a reader of events is. */
struct history_cursor {
    uint64_t after_id; /* of the last event it has */
    size_t end_at;     /* how much it has of the event `end`, which comes in pieces */
};

/* A reader of events. Streamed runs wait for one. */
void history_read_begin(struct history_run *run);
void history_read_end(struct history_run *run);

/* Appends the next events after the cursor in the form of text/event-stream and moves it on.
 * Waits up to wait_ms for one. Returns 1 when there may be more, 0 after the `end` event,
 * -ETIMEDOUT when nothing came, -ESHUTDOWN when the server stops, -ESTALE when the run was
 * forgotten because this reader is so slow. */
int history_read(
    struct history_run *run, struct history_cursor *cursor, unsigned wait_ms, struct buf *to);

/* Whether a reader that has seen after_id has seen everything. */
bool history_is_read(struct history_run *run, uint64_t after_id);

/* To be called about once a second: forgets what is too old and cancels streamed runs that
 * nobody reads. */
void history_tick(struct history *history);

/* Readers return -ESHUTDOWN from now on. */
void history_close(struct history *history);

void history_get_size(struct history *history, size_t *ret_runs, uint64_t *ret_bytes);
