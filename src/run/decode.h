/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The body of POST /v1/runs, strictly: bytes of a stranger -> struct run_spec. Every refusal
 * names the field. */

#include "base/err.h"
#include "state/config.h"
#include "run/encode.h"
#include "run/run.h"
#include "lang/runtime.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

struct json_run {
    struct run_spec spec;
    enum result_encoding encoding;
    bool is_async;
};

void json_run_done(struct json_run *run);

/* Parses any request body: an object, at most 64 levels deep, no duplicate keys, valid UTF-8.
 * The caller owns *ret. -EINVAL when it is JSON but no object, else -EBADMSG. */
int json_run_parse(const char *text, size_t len, json_t **ret, struct err *err);

/* The same for a value of any type; on failure *ret_at is the byte at fault. */
int json_run_parse_any(
    const char *text, size_t len, json_t **ret, size_t *ret_at, struct err *err);

/* Fills in *ret, which the caller gives to json_run_done() in any case. `mounts` are the
 * directories that the operator named (NULL: none), in the engine's order. */
int json_run_decode(const json_t *body, const struct runtime_registry *runtimes,
    const struct config *config, struct json_run *ret, struct err *err);

/* Decodes base64 with padding and nothing else. The caller frees *ret. */
int json_run_base64(const char *text, size_t len, char **ret, size_t *ret_len);

/* A `limits` object by the table of run/limits.h; `prefix` is "limits." in messages. */
int json_run_limits(
    const json_t *value, const char *prefix, struct run_limits *ret, struct err *err);
