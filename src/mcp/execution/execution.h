/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Executions: work that a tool began, which can outlast the call, pause for a person's decision
 * and be asked for again. They belong to the key, not to a session of the client. How an
 * execution works, and what raises a pause, is the business of its starter: this is the seam
 * for approvals.
 *
 * Each pause has an id of its own, so an answer that comes twice cannot decide the next one. */

#include "base/err.h"
#include "mcp/mcp.h"

struct executions;
struct execution;
struct purse;

enum {
    EXECUTIONS_OF_KEY = 64,   /* under way */
    EXECUTIONS_KEPT = 64,     /* of one key, after their end */
    EXECUTION_PAUSES = 256,   /* of one execution */
    EXECUTION_KEPT_S = 3600,  /* after their end */
    EXECUTION_SOFT_MS = 50000 /* a call answers after this time even if the work goes on */
};

struct executions *executions_new(struct mcp *mcp);

/* Cancels all and waits until their threads are through. */
void executions_stop(struct executions *all);

/* --- the side of the work */

/* Does the work on a thread of its own. Must call execution_finish(). */
typedef void execution_work(struct execution *e, void *context);

/* Starts an execution for this key. `bytes` is the memory that its request takes; `done` frees
 * the context. On failure the caller keeps the context. The caller owns a reference. */
int execution_start(struct executions *all, int owner, size_t bytes, execution_work *work,
    void (*done)(void *context), void *context, struct execution **ret, struct err *err);

const char *execution_id(const struct execution *e);
int execution_owner(const struct execution *e);
int execution_cancel_fd(const struct execution *e);

/* Written to when the execution is cancelled, beside cancel_fd; borrowed until -1 is given. */
void execution_also_cancel(struct execution *e, int fd);

/* Keeps an output as the resource hermes://execution/ID/NAME: takes `content`, an object
 * {mimeType, text} or {mimeType, blob}. */
void execution_keep(struct execution *e, const char *name, json_t *content);

/* The outcome, as the result of a tool; takes it. */
void execution_finish(struct execution *e, json_t *outcome);

/* Raises a pause: takes `interaction`, an object {kind, message, instructions, address, args,
 * requestedSchema or url}. Returns at once; `reply` is called once, on another thread, with the
 * decision ("accept", "decline" or "cancel"; content is an object or NULL), also when the
 * execution ends before. -ENOBUFS after too many. */
typedef void execution_reply(void *context, const char *action, const json_t *content);
int execution_pause(
    struct execution *e, json_t *interaction, execution_reply *reply, void *context);

/* Questions about effects of this run or session are pauses of the execution from now on: they
 * are decided through the client, or by another approver. */
void execution_attend(struct execution *e, const char *place);

/* --- the side of the client */

/* Finds an execution of this key by its id or by the id of one of its pauses, whose number goes
 * to *ret_pause (0: none). The caller owns a reference. */
struct execution *execution_find(
    struct executions *all, int owner, const char *id, unsigned *ret_pause);
void execution_unref(struct execution *e); /* accepts NULL */

/* Decides a pause. False when it was decided before. `via` says who: "elicitation" for a
 * person, "model" when a model relays the answer. */
bool execution_decide(struct execution *e, unsigned pause, const char *action,
    const json_t *content, const char *via);

/* Whether a pause still waits for its decision. */
bool execution_is_open(struct execution *e, unsigned pause);

void execution_cancel(struct execution *e);

/* The value that execution_keep() stored, or NULL; the caller owns it. */
json_t *execution_kept(struct execution *e, const char *name);

/* Adds {uri, name, mimeType} of everything kept for this key to the list. */
void executions_list(struct executions *all, int owner, json_t *list);

enum execution_state { EXECUTION_RUNNING, EXECUTION_PAUSED, EXECUTION_DONE };

/* The state of an execution, for answers. */
struct execution_view {
    enum execution_state state;
    char id[ID_MAX];     /* to resume with */
    unsigned pause;      /* the number of the open pause, or 0 */
    json_t *interaction; /* of the pause; owned */
    json_t *outcome;     /* after the end; owned */
};

/* Waits until the execution is over or paused, the call is cancelled (-ECANCELED), or
 * timeout_ms have passed. Sends progress meanwhile. */
int execution_wait(struct execution *e, struct mcp_call *call, uint64_t timeout_ms,
    struct execution_view *ret);
void execution_view_done(struct execution_view *view);

/* Waits for an execution and makes the result of the tool: its outcome, an interaction that the
 * client is asked about (elicitation or input_required), a pause to resume, or that it is still
 * running. Both `execute` and `resume` end here. */
int execution_answer(
    struct execution *e, struct mcp_call *call, uint64_t timeout_ms, json_t **ret);

/* For tools whose execution may be paused: a call that brings back a requestState with the
 * client's decision. 1 with the execution, or with *ret when it is gone; 0 for any other call;
 * or an error. The caller owns a reference. */
int execution_retry(struct mcp_call *call, struct execution **ret_execution, json_t **ret);

/* The tool `resume`. */
mcp_handler execution_resume;
