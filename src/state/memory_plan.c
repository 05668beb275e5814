/* SPDX-License-Identifier: Apache-2.0 */

/* See memory_plan.h. Besides the counted bytes there are the program and its libraries, the
 * memory that the store needs to write, and for each connection a thread, its pool and a short
 * reply. Held bytes get half as much again, and the history a quarter: heaps have holes, and
 * sockets have buffers. */

#include "state/memory_plan.h"

enum {
    HELD_SHARE = 8,              /* an eighth of the memory that boxes are promised */
    BODIES_HELD = 8,             /* at least this many of the largest bodies */
    STORED_IN_MEMORY = 64 << 20, /* bytes of answers kept beside the store */
    BASE_BYTES = 384 << 20,      /* the program, and the store's writing */
    CONNECTION_BYTES =
        384 << 10, /* a thread, a short reply, and four SOCKET_BUFFER in the kernel */
};

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t history_bytes(const struct config *config)
{
    return config->history == HISTORY_SQLITE ? smaller(config->history_max, STORED_IN_MEMORY)
                                             : config->history_max;
}

/* Bytes that the server needs even when it works on no request. */
static uint64_t fixed_bytes(const struct config *config)
{
    uint64_t history = history_bytes(config);
    /* A connection that was closed may still have its thread. */
    uint64_t connections = config->max_connections + config->max_connections / 8 + 512;
    return BASE_BYTES + connections * CONNECTION_BYTES + history + history / 4;
}

/* The limit in MiB, rounded up. `held` is how many bytes requests, outputs and replies may take
 * at one time. */
static uint64_t limit_mb(const struct config *config, uint64_t held)
{
    return (fixed_bytes(config) + held + held / 2 + (1 << 20) - 1) >> 20;
}

uint64_t memory_plan_least_mb(const struct config *config)
{
    return limit_mb(config, BODIES_HELD * config->max_body);
}

struct memory_plan memory_plan_make(const struct config *config)
{
    uint64_t least = BODIES_HELD * config->max_body;
    uint64_t held = (config->memory_mb << 20) / HELD_SHARE;
    uint64_t limit = config->server_memory_mb << 20;
    held = held > least ? held : least;
    if (limit)
        held = smaller(held, (limit - fixed_bytes(config)) / 3 * 2);
    return (struct memory_plan){.held_bytes = held,
        .history_bytes = history_bytes(config),
        .limit_mb = limit ? config->server_memory_mb : limit_mb(config, held)};
}
