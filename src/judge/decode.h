/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The body of POST /v1/judge, strictly; and the same without tests, for a problem's folder. */

#include "judge/judge.h"
#include "run/decode.h"

struct json_judge {
    struct judge_spec spec; /* `parallel` is 0 when the request does not say */
    enum result_encoding encoding;
    bool is_async;
};
void json_judge_done(struct json_judge *judge);

/* Fills in *ret, which the caller gives to json_judge_done() in any case. With `has_tests` the
 * body must have tests and the spec is settled; else the caller adds them. */
int json_judge_decode(const json_t *body, const struct runtime_registry *runtimes,
    bool has_tests, struct json_judge *ret, struct err *err);
