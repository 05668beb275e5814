/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What core/engine*.c know about an engine. */

#include "run/engine.h"

enum { ROOT_COMPILE, ROOT_RUN, ROOT_HOST_COMPILE, ROOT_HOST_RUN, ROOT_KINDS };

struct engine {
    struct spawner_client spawner;
    const struct runtime_registry *runtimes;
    struct run_limits maxima;
    struct cache *cache; /* or NULL */
    bool cache_shared;
    size_t source_count;
    _Atomic uint64_t *warm_base_kb; /* per runtime: calibrate.h */
    int (*roots)[ROOT_KINDS];       /* per runtime: index at the spawner, or -1 */
    struct root_entries registered[SPAWN_MAX_ROOTS];
    size_t registered_count;
};

/* Limits of a session's box in the spawner's units: CPU time is counted by exec, not by box, so
 * that boxes kept ready fit whatever a session says about it. */
void engine_session_limits(const struct run_limits *from, struct spawn_limits *to);

/* What the box of a session is asked for with. */
uint32_t engine_session_flags(const struct runtime *rt);

/* An interpreter that runs already has read its environment: what would have changed it then
 * (among the variables that were asked for) needs a new one. */
bool engine_fits_warm(
    const struct strv *argv, const struct strv *env, const struct strv *asked);

void engine_open_cache(struct engine *e, const struct cache_settings *settings);
