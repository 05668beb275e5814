/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* How much memory the server may take, and what for. Monitor and server plan with the same
 * settings: the one limits the server's control group, the other keeps well below. */

#include "base/err.h"
#include "core/config.h"

/* What the kernel may keep in each direction for one connection; it doubles the number. */
enum { SOCKET_BUFFER = 64 << 10 };

struct memory_plan {
    uint64_t held_bytes;    /* of requests, outputs and replies under way (base/ledger.h) */
    uint64_t history_bytes; /* of results kept in memory */
    uint64_t limit_mb;      /* of the server's control group */
};

/* memory_mb of the settings must be known. ERR_INVALID when server_memory_mb is too little. */
int memory_plan_make(const struct config *config, struct memory_plan *ret, struct err *err);
