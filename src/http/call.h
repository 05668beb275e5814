/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* For handlers that run something for their client: naming it, recording it, and running it
 * until the client leaves. */

#include "http/http.h"

/* Returns a descriptor that becomes readable when the client leaves, or negative errno with
 * err. */
int follow_begin(struct http_request *req, struct err *err);
void follow_end(struct http_request *req, int fd);

/* Limits the compile cache of a spec to the caller's key. */
void call_scope(const struct http_request *req, struct run_spec *spec);

/* Makes the record of the request's run in the history. */
int call_record(struct http_request *req, const struct history_entry *entry,
    struct history_run **ret, struct err *err);

/* Runs the spec on this thread, until the client leaves. `record` may be NULL. Returns 0 with
 * the result, also of a cancelled run, or an error. Initialises *result in any case; the caller
 * ends it. */
int call_run(struct http_request *req, struct run_spec *spec, struct history_run *record,
    struct run_result *result, struct err *err);
