/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Pools: boxes made ahead whose program has started and waits for its job, for interpreters
 * that cannot be forked (node, a JVM; those that can have zygotes, zygote.h). Such a box is a
 * cold box in everything, except that its program begins with code of ours (warm.c), which
 * takes the job from a socket and becomes what a cold box would have executed. Each serves one
 * run.
 *
 * A pool keeps `min` boxes, more up to `max` when that was not enough a short while ago, and
 * none while the host is short of memory. It starts one at a time, with little weight, when
 * nobody waits for the spawner. */

#include "proto/spawn.h"

#include <stdbool.h>
#include <stdint.h>

struct spawner;
struct pool {
    uint32_t root;
    uint32_t exec;
    uint32_t min;
    uint32_t max;
    uint32_t want;   /* between the two */
    uint32_t parked; /* boxes there are, ready or not */
    uint64_t base_bytes;
    struct spawn_limits limits;
    int job_fd;          /* arguments and environment until there is a job */
    uint64_t missed_ms;  /* when a request last found none */
    uint64_t started_ms; /* of the box that is not ready yet */
    uint64_t retry_ms;
    uint32_t failures; /* in a row */
    bool is_starting;  /* one box is not ready yet */
};

/* Remembers a registration; takes job_fd. */
int pool_add(struct spawner *s, const struct spawn_pool *p, int job_fd);

/* Whether a parked box of it is what the request asks for. */
bool pool_fits(const struct pool *p, const struct spawn_box *request);

/* A request is served cold that a pool could have served. */
void pool_miss(struct spawner *s, const struct spawn_box *request);

/* A box of the pool waits; is no longer the pool's, because it has a job or we ended it; or
 * ended by itself. */
void pool_ready(struct pool *p);
void pool_drop(struct pool *p, bool was_starting);
void pool_lose(struct pool *p, bool was_starting);

/* Called when nobody waits for us: does one thing, returns whether there is more to do. */
bool pool_tend(struct spawner *s);

/* Milliseconds until it should be called again though nothing happens, or -1. */
int pool_pause_ms(const struct spawner *s);
