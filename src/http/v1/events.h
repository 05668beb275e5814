/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Sends the events of a run as text/event-stream. */

#include "http/call.h"

/* Finds the run, exec or judgement of the path; the caller owns a reference. Ids have kinds:
 * the id of a judgement or of a session is not found below /v1/runs. */
int find_run(const struct http_request *req, struct history_run **ret, struct err *err);

/* Makes the reply a stream of the events after after_id. Takes the reference to the run. */
void events_reply(struct http_request *req, struct history_run *run, uint64_t after_id,
    struct http_reply *reply);

/* How the client of a new run wants its answer. */
enum run_mode events_mode(const struct http_request *req, bool is_async);

/* Starts something that takes the reference to `record` when it succeeds. */
typedef int events_start(
    struct http_request *req, void *context, struct history_run *record, struct err *err);

/* Starts a run, a judgement or an exec that goes on without this thread. Replies with its
 * events if the entry's mode is RUN_STREAMED, else with 202 and its address, which is `path`
 * and the id. */
int events_later(struct http_request *req, const struct history_entry *entry, const char *path,
    events_start *start, void *context, struct http_reply *reply, struct err *err);
