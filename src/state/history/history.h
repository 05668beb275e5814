/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The runs that a client may ask for: their state, their events while they are running, and
 * their answers for a configured time. Bounded in number and bytes: the oldest finished runs of
 * the owner that has most are forgotten first. With a store, answers and promised runs outlive
 * the server. Any thread may call any function. */

#include "base/answer.h"
#include "base/buf.h"
#include "base/err.h"
#include "run/encode.h"
#include "run/engine.h"

#include <stdbool.h>
#include <stdint.h>

struct history;
struct history_run;
struct run_list;
struct run_query;
struct run_store;

struct history_options {
    struct run_store *store; /* borrowed; NULL: memory only */
    struct ledger *ledger; /* borrowed; counts answers that are read from the store; or NULL */
    uint64_t ttl_ms;
    uint64_t max_bytes;    /* of the store */
    uint64_t memory_bytes; /* of everything kept in memory */
    uint64_t resume_grace_ms;
};

enum run_mode {
    RUN_SYNC,     /* the client waits for the answer; no events are kept */
    RUN_ASYNC,    /* continues when clients leave */
    RUN_STREAMED, /* cancelled when it has no reader for the grace period */
};

/* The key that owns a run. */
struct history_owner {
    const char *name; /* "" for none */
    int index;        /* in the ledger */
};

struct history *history_new(const struct history_options *options);
void history_free(struct history *history); /* no run may be referenced any more */

/* The facts of a run before it begins. */
struct history_entry {
    enum run_mode mode;
    enum result_encoding encoding; /* of its output in events */
    const char *language;          /* borrowed until the history is freed; NULL for none */
    struct answer *request;        /* to be kept beside the answer; NULL: not kept. The caller
                                      is a user of it, and stays one */
};

/* Adds a run with this id; the caller owns a reference. Async and streamed runs are written to
 * the store first. */
int history_add(struct history *history, const char *id, struct history_owner owner,
    const struct history_entry *entry, struct history_run **ret, struct err *err);

/* Sets the error for a run that is not there, or not for this caller. */
int history_not_found(const char *id, struct err *err);

/* Finds a run of this owner; the caller owns a reference. ERR_NOT_FOUND when there is none or
 * it has another owner. ERR_UNAVAILABLE when memory for the stored answer is short. */
int history_find(struct history *history, const char *id, struct history_owner owner,
    struct history_run **ret, struct err *err);
struct history_run *history_ref(struct history_run *run);
void history_unref(struct history_run *run); /* accepts NULL */

/* Removes a run that never began. history_find() no longer finds it. */
void history_forget(struct history_run *run);

/* Reports from the thread that executes the run. After history_finish() the caller is still a
 * user of the answer. */
void history_started(struct history_run *run);
void history_output(
    struct history_run *run, enum run_stream stream, const char *data, size_t len);
/* Another event, `json` on one line. Of a very large one only a note is kept. */
void history_event(struct history_run *run, const char *name, const char *json);
void history_exited(struct history_run *run, int exit_code); /* before history_finish() */
void history_finish(struct history_run *run, enum run_status status, struct answer *answer);

/* Returns the request that was kept, of which the caller becomes a user. ERR_NOT_FOUND when it
 * was not kept. */
int history_request(
    struct history_run *run, struct history_owner owner, struct answer **ret, struct err *err);
enum { REQUEST_KEPT_MAX = 1 << 20 }; /* bytes of a request that is kept */

/* Gives the run a standard input that clients write to while it is under way. *ret_fd is the
 * end to read from; the run owns it until it ends. */
int history_open_stdin(struct history_run *run, int *ret_fd, struct err *err);

/* Returns a descriptor to write to, which does not block. A write fails with EPIPE after the
 * run has ended. ERR_CONFLICT when the run has ended, has no open standard input, or has
 * another writer. */
int history_stdin_begin(struct history_run *run, struct err *err);

/* Closes the descriptor. With `eof` no client can write any more, and the program reads the end
 * of its input. */
void history_stdin_end(struct history_run *run, int fd, bool eof);

/* Whether no events of the run are kept (RUN_SYNC). */
bool history_is_quiet(const struct history_run *run);

/* Becomes readable when the run should be cancelled. The run owns it; -1 for a finished run. */
int history_cancel_fd(const struct history_run *run);

/* False when the run has finished. */
bool history_cancel(struct history_run *run);

/* Cancels all runs that have not finished. */
void history_cancel_all(struct history *history);

/* Returns the answer, or {id,status} while there is none; the caller is its user. ERR_NOT_FOUND
 * when the run was just forgotten, ERR_UNAVAILABLE when memory is short. */
int history_answer(struct history_run *run, struct answer **ret, struct err *err);

const char *history_id(const struct history_run *run);

/* Runs of one page of a list; one more is asked for to know whether there is a next page. */
enum { RUN_PAGE_DEFAULT = 20, RUN_PAGE_MAX = 100 };

/* Lists runs from memory and from the store; the caller calls run_list_done(), also after an
 * error. Fills in query->expired_ms. */
int history_list(
    struct history *history, struct run_query *query, struct run_list *list, struct err *err);

/* The position of a reader of events. */
struct history_cursor {
    uint64_t after_id; /* id of the last event that the reader has */
    size_t end_at;     /* the event `end` comes in pieces: bytes that the reader has of it */
};

/* Registers a reader of events. Streamed runs need one. */
void history_read_begin(struct history_run *run);
void history_read_end(struct history_run *run);

/* Appends the next events after the cursor in the form of text/event-stream and advances the
 * cursor. Waits up to wait_ms for an event. Returns 1 when there may be more, 0 after the `end`
 * event, -ETIMEDOUT when nothing came, -ESHUTDOWN when the server stops, -ESTALE when the run
 * was forgotten while this slow reader was behind. */
int history_read(
    struct history_run *run, struct history_cursor *cursor, unsigned wait_ms, struct buf *to);

/* Whether a reader that has seen after_id has seen all events. */
bool history_is_read(struct history_run *run, uint64_t after_id);

/* Call about twice a second. Forgets runs that are too old and cancels streamed runs without a
 * reader. */
void history_tick(struct history *history);

/* From now on readers get -ESHUTDOWN. */
void history_close(struct history *history);

void history_get_size(struct history *history, size_t *ret_runs, uint64_t *ret_bytes);
