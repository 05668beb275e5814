/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Decodes the body of POST /v1/runs, strictly: a stranger's JSON becomes a struct run_spec.
 * Every refusal names the field. */

#include "base/err.h"
#include "lang/runtime.h"
#include "run/encode.h"
#include "run/run.h"
#include "json/body.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* Most bytes of an argument or a variable: the kernel does not take more. */
enum { RUN_WORD_MAX = 128 << 10 };

struct json_run {
    struct run_spec spec;
    enum result_encoding encoding;
    bool is_async;
    bool keep_request; /* beside the answer */
    bool stdin_open;   /* more input will come while the run is under way */
};

void json_run_done(struct json_run *run);

/* Fills in *ret. The caller must call json_run_done(), also after an error. `mounts` are the
 * directories of the operator (NULL: none), in the engine's order. */
int json_run_decode(const json_t *body, const struct runtime_registry *runtimes,
    const struct mount_table *mounts, struct json_run *ret, struct err *err);
