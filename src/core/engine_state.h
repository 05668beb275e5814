/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What core/engine.c and core/engine_table.c know about an engine. */

#include "core/engine.h"

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

void engine_open_cache(struct engine *e, const struct cache_settings *settings);
