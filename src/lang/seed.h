/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Seeds: what a compiler would otherwise make again in every box, such as a precompiled header
 * or a compiled standard library. A language has at most one. Its recipe is a script in
 * runtime.json that runs in a box with the root of the compile stage (image/seed_build.h). The
 * directory of seeds has:
 *
 *   NAME-KEY/        the place of a seed; boxes see it read-only as SEED_IN_BOX
 *   NAME-KEY/ready/  the seed; it has this name only when it is complete
 *   incoming/tree/   the seed that is being made
 *
 * KEY is a hash over everything that the seed depends on: the root of the compile stage, the
 * compiler's file, the recipe, the architecture. A seed that becomes ready appears in all boxes
 * of its root, also in those that run. Every user of a place holds a shared flock on it. */

#include "base/err.h"
#include "lang/json_file.h"
#include "lang/rootfs.h"
#include "lang/runtime.h"

#include <stdbool.h>
#include <sys/types.h>

#define SEED_IN_BOX "/usr/lib/hermes/seed"
#define SEED_READY "ready"
#define SEED_INCOMING "incoming"
#define SEED_KEEP_OWNER ((uid_t)-1) /* for seeds_open(): its present owner, or this user */

struct seed_place {
    char *path; /* NULL: the language has none */
    int lock_fd;
};
void seed_place_done(struct seed_place *place); /* accepts a zeroed one */

/* Reads `seed` of a compile stage. */
int seed_def_read(struct json_at at, struct seed_def *ret);
void seed_def_done(struct seed_def *def);

/* The limits of the box that makes the seed. */
struct run_limits seed_limits(const struct runtime *rt);

/* Opens the directory `named`; when that is NULL or "", /var/cache/hermes as root, else
 * $XDG_CACHE_HOME/hermes or ~/.cache/hermes. Makes what is missing, gives `incoming` to the
 * user that will make seeds, and removes places that are not used. Returns the path, which the
 * caller frees. */
int seeds_open(const char *named, uid_t uid, gid_t gid, char **ret_path, struct err *err);

/* Makes the place of a language's seed in the directory `named` of seeds_open(), for the owner
 * of `incoming`, and locks it. `compile` is the root of its compile stage. */
int seed_place_open(const struct runtime *rt, const struct root_entries *compile,
    const char *named, struct seed_place *ret);

/* Shows the place to the boxes of a root. */
int seed_place_add(const struct seed_place *place, struct root_entries *to);

/* The path of the place that boxes of this root see; NULL when there is none. */
const char *seed_place_of(const struct root_entries *root);

bool seed_is_ready(const char *place);
