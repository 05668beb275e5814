/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Decodes the body of POST /v1/judge, strictly. Also decodes the same body without tests, for a
 * folder of a problem. */

#include "judge/judge.h"
#include "run/decode.h"

/* Most bytes of a name, most strings of a list, most points of a test or group. */
enum { JUDGE_NAME_MAX = 200, JUDGE_WORDS_MAX = 256, JUDGE_POINTS_MAX = 1000000000 };

struct json_judge {
    struct judge_spec spec; /* `parallel` is 0 when the request does not name it */
    enum result_encoding encoding;
    bool is_async;
};
void json_judge_done(struct json_judge *judge);

/* Fills in *ret. The caller must call json_judge_done(), also after an error. With `has_tests`
 * the body must have tests, and the spec is settled; otherwise the caller adds tests and
 * settles it. */
int json_judge_decode(const json_t *body, const struct runtime_registry *runtimes,
    const struct mount_table *mounts, bool has_tests, struct json_judge *ret, struct err *err);
