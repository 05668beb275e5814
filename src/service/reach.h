/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Calls to the outside, which hermes-reach makes (proto/reach.h). */

#include "base/buf.h"
#include "proto/reach.h"

/* Sends a body to a target and waits for the answer, at most timeout_ms. Returns 0 with the
 * HTTP status and the body of the answer, which *ret_body (initialised) has room for.
 * -ETIMEDOUT, -EMSGSIZE (the answer is too long), or another negative errno: there is no
 * answer. */
int reach_call(int reach_fd, enum reach_target target, const char *body, uint32_t timeout_ms,
    uint32_t *ret_status, struct buf *ret_body);

/* The same without an answer: returns at once. */
int reach_tell(int reach_fd, enum reach_target target, const char *body);
