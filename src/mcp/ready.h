/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Sessions for `execute`. Each execution has one of its own, which no other code used before.
 * After an execution the next session of that key and language is started ahead: code that an
 * agent sends next finds an interpreter that runs already. It counts as any session of the key,
 * and expires after READY_IDLE_S. With the setting session_parked = 0 none is started ahead. */

#include "base/err.h"
#include "mcp/mcp.h"

struct runtime;
struct session;

enum { READY_MAX = 32, READY_IDLE_S = 300 };

/* Takes a session that stands ready, or makes one. The caller owns a reference. */
int ready_take(struct mcp *mcp, const struct runtime *runtime, int owner, int cancel_fd,
    struct session **ret, struct err *err);

/* Starts the next one, on this thread. */
void ready_refill(struct mcp *mcp, const struct runtime *runtime, int owner);

/* Ends the sessions that were started ahead. Call before service_close(). */
void ready_stop(struct mcp *mcp);
