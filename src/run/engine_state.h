/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The inside of an engine, for run/engine.c, run/register.c and run/handed_over.c, and for
 * session/box.c and service/calibrate.c. */

#include "run/engine.h"

enum { ROOT_COMPILE, ROOT_RUN, ROOT_HOST_COMPILE, ROOT_HOST_RUN, ROOT_KINDS };

struct engine {
    struct spawner_client spawner;
    const struct runtime_registry *runtimes;
    struct run_limits maxima;
    struct cache *cache; /* or NULL */
    bool cache_shared;
    size_t source_count;
    _Atomic uint64_t *warm_base_kb; /* per runtime: see service/calibrate.h */
    int (*roots)[ROOT_KINDS]; /* per runtime: index of the root in the spawner's table, or -1 */
    struct root_entries registered[SPAWN_MAX_ROOTS];
    size_t registered_count;
};

/* Converts the limits of a session's box to the spawner's units. CPU time is limited for each
 * exec, not for the box, so that ready boxes fit any session. */
void engine_session_limits(const struct run_limits *from, struct spawn_limits *to);

/* The flags of a request for the box of a session. */
uint32_t engine_session_flags(const struct runtime *rt);

void engine_open_cache(struct engine *e, const struct engine_options *options);
