/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Decodes the request bodies of /v1/sessions. Unknown fields are refused; every refusal names
 * the field. */

#include "run/decode.h"
#include "session/session.h"
#include "state/config.h"

enum {
    SESSION_SECONDS_MAX = 31536000, /* one year; start.c applies the configured limits */
    TOOLS_MAX = 128,                /* tools that one exec can offer */
    TOOL_NAME_MAX = 64,             /* bytes */
    TOOL_CALLS_DEFAULT = 50,        /* per exec */
    TOOL_CALLS_MAX = 10000,
    TOOL_TIMEOUT_DEFAULT_MS = 300000,
    TOOL_RESULT_MAX = 1 << 20, /* bytes of the body with a tool's answer */
};

/* Fills in *ret. The caller calls session_spec_done(), also after an error. */
int json_session_decode(const json_t *body, const struct runtime_registry *runtimes,
    const struct config *config, struct session_spec *ret, struct err *err);

/* Decodes the body of PATCH /v1/sessions/{id}. The caller frees *ret; NULL is "none". */
int json_session_change_decode(
    const json_t *body, struct network_policy **ret, struct err *err);

/* Fills in *ret. The caller calls exec_spec_done(), also after an error. `streams` says that
 * the caller receives events; tools are refused without them. */
int json_exec_decode(const json_t *body, const struct config *config, bool streams,
    struct exec_spec *ret, struct err *err);

/* Checks a body {id, output} or {id, error}. */
int json_tool_result_check(const json_t *body, size_t body_len, struct err *err);

/* Decodes the body of a fork. An empty body means one copy. */
int json_fork_decode(const char *data, size_t len, unsigned *ret_count, struct err *err);

/* Decodes the body of a checkpoint or a rollback. `ret` becomes the value of `field`, "" when
 * the field is missing and not required. */
int json_checkpoint_decode(const char *data, size_t len, const char *field, bool required,
    char ret[CHECKPOINT_NAME_MAX + 1], struct err *err);
