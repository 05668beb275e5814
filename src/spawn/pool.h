/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Pools: ready boxes whose program has started and waits for its package. They are for
 * interpreters that cannot be forked (Node, a JVM); the others have zygotes (zygote.h). Such
 * a box differs from a cold box in one point: its program begins with code of Hermes
 * (warm/warm.c), which takes the package from a socket and becomes the program that a cold
 * box would have executed. Each box serves one run.
 *
 * A pool keeps `min` boxes, more up to `max` for a while after a request found none, and none
 * while the host is short of memory. It starts one box at a time, with a small CPU weight, when
 * the spawner is idle. */

#include "proto/spawn.h"
#include "spawn/box_kinds.h"

#include <stdbool.h>
#include <stdint.h>

struct pool {
    uint32_t root;
    uint32_t exec;
    uint32_t min;
    uint32_t max;
    uint32_t want;   /* boxes to keep now, from min to max */
    uint32_t parked; /* boxes that exist, ready or still starting */
    uint64_t base_bytes;
    struct spawn_limits limits;
    int package_fd;      /* package with arguments and environment of the waiting program */
    uint64_t missed_ms;  /* when a request last found no box */
    uint64_t started_ms; /* start of the box that is not ready yet */
    uint64_t retry_ms;
    uint32_t failures; /* in a row */
    bool is_starting;  /* one box is still starting */
};

/* Adds a pool of the sealed table; takes package_fd. */
int pool_add(struct spawner *s, const struct spawn_pool *p, int package_fd);

/* Notes that a request starts cold which a pool could have served: the pool grows. */
void pool_miss(struct spawner *s, const struct spawn_box *request);

/* Called when the spawner is idle: starts or ends one box. Returns whether there may be more to
 * do. */
bool pool_tend(struct spawner *s);

/* Milliseconds until pool_tend() must be called again even if nothing happens, or -1. */
int pool_pause_ms(const struct spawner *s);
