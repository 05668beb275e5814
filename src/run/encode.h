/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Encodes a run_result as the JSON of docs/api.md. */

#include "base/err.h"
#include "run/run.h"
#include "json/text.h"

#include <jansson.h>

/* Flags for json_dumps(): prints 79.35, not 79.349999999999994. */
#define RESULT_JSON_FLAGS JSON_REAL_PRECISION(12)

enum result_encoding { ENCODE_UTF8, ENCODE_BASE64 };

/* Makes the answer of a run. The caller becomes its first user (base/answer.h). A non-NULL err
 * means that Hermes failed, not the program: the answer gets the status internal_error and a
 * member `error`. With a NULL ledger the bytes are not counted. Returns NULL when the ledger
 * refuses or memory is short; if the ledger refuses, `held`, which counts the result, is closed
 * (or NULL). */
struct answer *result_answer(const struct run_result *result, enum result_encoding encoding,
    const struct err *err, struct ledger *ledger, int owner, struct purse *held);

/* The same as a value, which the caller owns; NULL when memory is short. */
json_t *result_json(const struct run_result *result, enum result_encoding encoding);

/* Parts of the answer, for other answers. */
json_t *result_text_json(const char *data, size_t len, enum result_encoding encoding);
json_t *result_usage_json(const struct run_usage *usage);
json_t *result_hits_json(unsigned hits);
json_t *result_compile_json(const struct run_result *result, enum result_encoding encoding);
json_t *result_isolation_json(const struct run_result *result);

/* A moment of the wall clock: "2026-11-16T22:15:49Z". */
json_t *result_time_json(int64_t seconds);

/* The answer of a run that failed because of Hermes, without the member `error`. */
json_t *result_json_error(const struct run_result *result, const struct err *err);

void result_write_usage(struct json_text *t, const struct run_usage *usage);
void result_write_hits(struct json_text *t, unsigned hits);

/* The features that the host enforces, for /v1/report and `hermes doctor`. */
struct spawn_reply;
json_t *result_report_json(const struct spawn_reply *reply);
