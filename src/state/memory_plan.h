/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* How much memory the server may use, and for what. Monitor and server compute the same plan
 * from the same settings: the monitor limits the server's control group, and the server stays
 * well below that limit. */

#include "state/config.h"

/* Bytes that the kernel may keep in each direction for one connection; the kernel doubles the
 * number. */
enum { SOCKET_BUFFER = 64 << 10 };

struct memory_plan {
    uint64_t held_bytes;    /* requests, outputs and replies under way (base/ledger.h) */
    uint64_t history_bytes; /* results kept in memory */
    uint64_t limit_mb;      /* the limit of the server's control group */
};

/* The least that server_memory_mb may be, if it is not 0. */
uint64_t memory_plan_least_mb(const struct config *config);

/* config->memory_mb must not be 0; config_load() has checked server_memory_mb. */
struct memory_plan memory_plan_make(const struct config *config);
