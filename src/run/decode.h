/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The body of POST /v1/runs, strictly: bytes of a stranger -> struct run_spec. Every refusal
 * names the field. */

#include "base/err.h"
#include "lang/runtime.h"
#include "run/encode.h"
#include "run/run.h"
#include "json/body.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

struct json_run {
    struct run_spec spec;
    enum result_encoding encoding;
    bool is_async;
};

void json_run_done(struct json_run *run);

/* Fills in *ret, which the caller gives to json_run_done() in any case. `mounts` are the
 * directories that the operator named (NULL: none), in the engine's order. */
int json_run_decode(const json_t *body, const struct runtime_registry *runtimes,
    const struct mount_table *mounts, struct json_run *ret, struct err *err);
