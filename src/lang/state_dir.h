/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The two directories that Hermes keeps: one for its state (root trees, versions, the compile
 * cache) and one for seeds (lang/seed.h). */

#include "base/err.h"

/* Directories that the user or the operator named. Texts are borrowed. NULL or "" means that
 * nothing was named. */
struct lang_dirs {
    const char *runtimes; /* HERMES_RUNTIMES: has base.json and the languages of Hermes */
    const char *more;  /* RUNTIME_DIR: directories with more languages, separated by colons */
    const char *state; /* HERMES_STATE_DIR: the `named` of state_dir_open() */
    const char *seeds; /* HERMES_SEED_DIR: the `named` of seed_dir_open() */
    const char *home;  /* HOME: what ~ stands for in runtime.json */
};

/* Opens the directory `named`; when that is NULL or "", /var/lib/hermes as root, else
 * $XDG_STATE_HOME/hermes or ~/.local/state/hermes. Creates it with mode 0700 if missing. It
 * must belong to this user. Returns a descriptor and the path; the caller frees the path. */
int state_dir_open(const char *named, char **ret_path, struct err *err);

/* The same for seeds: /var/cache/hermes as root, else $XDG_CACHE_HOME/hermes or
 * ~/.cache/hermes. */
int seed_dir_open(const char *named, char **ret_path, struct err *err);
