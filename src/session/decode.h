/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The bodies of /v1/sessions, strictly. Every refusal names the field. */

#include "run/decode.h"
#include "session/session.h"
#include "state/config.h"

enum { TOOL_RESULT_MAX = 1 << 20, TOOLS_MAX = 128 };

/* Fills in *ret; the caller frees its env in any case. */
int json_session_decode(const json_t *body, const struct runtime_registry *runtimes,
    const struct config *config, struct session_spec *ret, struct err *err);

/* Fills in *ret, which the caller gives to exec_spec_done() in any case. `streams`: the caller
 * will see events, so that tools can be offered. */
int json_exec_decode(const json_t *body, const struct config *config, bool streams,
    struct exec_spec *ret, struct err *err);

/* Checks {id, output} or {id, error}. */
int json_tool_result_check(const json_t *body, size_t body_len, struct err *err);

/* The body of a fork, which may be empty. */
int json_fork_decode(const char *data, size_t len, unsigned *ret_count, struct err *err);

/* The body of a checkpoint or a rollback: the name in `field`, "" when it is left out. */
int json_checkpoint_decode(const char *data, size_t len, const char *field, bool required,
    char ret[CHECKPOINT_NAME_MAX + 1], struct err *err);
