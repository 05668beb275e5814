/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Makes the seed of a language (lang/seed.h). The recipe runs in a box with the root of the
 * compile stage: it has no file of a request, no network, and nothing else ever runs in it.
 * Its output is checked and then renamed into place in one step. */

#include "base/err.h"
#include "run/engine.h"

struct seed_builder {
    struct engine *engine;
    const char *dir; /* of seeds_open() */
    uint32_t owner;  /* of the box, as in run_spec; SPAWN_OWNER_IDLE: no request waits for it */
    int cancel_fd;   /* ends the build when it becomes readable; -1 for none */
};

/* 0 also when the seed is there already. -ECANCELED with ERR_CONFLICT when it was cancelled;
 * ERR_BUSY when another process makes a seed. */
int seed_build(const struct seed_builder *builder, const struct runtime *rt, struct err *err);
