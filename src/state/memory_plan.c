/* SPDX-License-Identifier: Apache-2.0 */

/* See memory_plan.h. Besides the counted bytes there are the program and its libraries, the
 * memory that the store needs to write, and for each connection a thread, its pool and a short
 * reply. Held bytes get half as much again, and the history a quarter: heaps have holes, and
 * sockets have buffers. */

#include "state/memory_plan.h"

#include <errno.h>

enum {
    HELD_SHARE = 8,              /* an eighth of what boxes are promised */
    BODIES_HELD = 8,             /* at least so many of the largest bodies */
    STORED_IN_MEMORY = 64 << 20, /* bytes of answers kept beside the store */
    BASE_BYTES = 384 << 20,      /* the program, and the store's writing */
    CONNECTION_BYTES =
        384 << 10, /* a thread, a short reply, and four SOCKET_BUFFER in the kernel */
};

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

int memory_plan_make(const struct config *config, struct memory_plan *ret, struct err *err)
{
    uint64_t least = BODIES_HELD * config->max_body;
    uint64_t held = (config->memory_mb << 20) / HELD_SHARE;
    uint64_t history = config->history == HISTORY_SQLITE
                           ? smaller(config->history_max, STORED_IN_MEMORY)
                           : config->history_max;
    /* A connection that was closed may still have its thread. */
    uint64_t connections = config->max_connections + config->max_connections / 8 + 512;
    uint64_t fixed = BASE_BYTES + connections * CONNECTION_BYTES + history + history / 4;
    held = held > least ? held : least;
    uint64_t limit = config->server_memory_mb << 20;
    if (limit) {
        if (limit < fixed + least + least / 2)
            return err_field(err, "server_memory_mb",
                "server_memory_mb must be 0 or at least %llu with this max_body, "
                "max_connections and history_max",
                (unsigned long long)((fixed + least + least / 2) >> 20) + 1);
        held = smaller(held, (limit - fixed) / 3 * 2);
    }
    *ret = (struct memory_plan){.held_bytes = held,
        .history_bytes = history,
        .limit_mb = (limit ? limit : fixed + held + held / 2) >> 20};
    return 0;
}
