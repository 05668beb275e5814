/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A run_result as the JSON of docs/api.md. */

#include "base/err.h"
#include "run/run.h"
#include "json/text.h"

#include <jansson.h>

/* For json_dumps(): numbers come out as 79.35, not 79.349999999999994. */
#define RESULT_JSON_FLAGS JSON_REAL_PRECISION(12)

enum result_encoding { ENCODE_UTF8, ENCODE_BASE64 };

/* The caller is its user. With err (or NULL) that of a run which failed because of Hermes:
 * status internal_error and the member `error`. NULL when the ledger (NULL: nobody counts)
 * refuses or there is no memory. */
struct answer *result_answer(const struct run_result *result, enum result_encoding encoding,
    const struct err *err, struct ledger *ledger, int owner);

/* The same as a value, which the caller owns; NULL without memory. */
json_t *result_json(const struct run_result *result, enum result_encoding encoding);

/* Parts of it, for other answers. */
json_t *result_text_json(const char *data, size_t len, enum result_encoding encoding);
json_t *result_usage_json(const struct run_usage *usage);
json_t *result_hits_json(unsigned hits);
json_t *result_compile_json(const struct run_result *result, enum result_encoding encoding);
json_t *result_isolation_json(const struct run_result *result);

/* The same for a run that failed because of Hermes, without the member `error`. */
json_t *result_json_error(const struct run_result *result, const struct err *err);

void result_write_usage(struct json_text *t, const struct run_usage *usage);
void result_write_hits(struct json_text *t, unsigned hits);

/* What the host enforces, for /v1/report and doctor. */
struct spawn_reply;
json_t *result_report_json(const struct spawn_reply *reply);

/* Base64 with padding. The caller frees. */
char *result_base64(const void *data, size_t len);
