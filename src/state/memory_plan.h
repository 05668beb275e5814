/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* How much memory the server may use, and for what. Monitor and server compute the same plan
 * from the same settings: the monitor limits the server's control group, and the server stays
 * well below that limit. */

#include "base/err.h"
#include "state/config.h"

/* What the kernel may keep in each direction for one connection; it doubles the number. */
enum { SOCKET_BUFFER = 64 << 10 };

struct memory_plan {
    uint64_t held_bytes;    /* requests, outputs and replies under way (base/ledger.h) */
    uint64_t history_bytes; /* results kept in memory */
    uint64_t limit_mb;      /* the limit of the server's control group */
};

/* config->memory_mb must not be 0. ERR_INVALID when server_memory_mb is too small. */
int memory_plan_make(const struct config *config, struct memory_plan *ret, struct err *err);
