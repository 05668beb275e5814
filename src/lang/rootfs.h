/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The root tree of a box. Its /usr/bin holds links (or copies, where links are not possible) of
 * the listed programs only, so a box never sees the host's /usr/bin with its set-uid programs.
 * Libraries and language directories are bound read-only; /etc is generated. The result is kept
 * in STATE_DIR/roots. runtimes/base.json lists what every box has. */

#include "base/err.h"
#include "lang/runtime.h"
#include "proto/spawn.h"

struct root_entries {
    struct spawn_entry *items;
    size_t count;
    int lock_fd;    /* shared lock: keeps the directory from being removed as stale */
    char key[96];   /* name of the directory; it changes when the toolchain changes */
    char facts[33]; /* the same hash without the place of the state directory */
};

/* root_entries_done() also releases the lock: call it when no box of this root can be running
 * any more. It accepts a struct that root_entries_init() made. */
void root_entries_init(struct root_entries *entries);
void root_entries_done(struct root_entries *entries);

/* The privileged files of directories of the host. Most roots bind the same directories, so the
 * builds of one registration share it. Never keep it longer: a file may become set-uid. {0} is
 * an empty one. */
struct root_walks {
    struct root_walk {
        char *dir;              /* the real path */
        struct strv privileged; /* paths below it */
    } * items;
    size_t count;
};
void root_walks_done(struct root_walks *walks);

/* Returns the entries for SPAWN_ROOT. Builds the directory or reuses it. Concurrent builders
 * and kill -9 do no harm: the directory is made under a temporary name and renamed into place.
 * `name` is a short word for the directory's name, such as "c-compile". */
int root_describe(const struct root_spec *spec, const char *name, const struct lang_dirs *dirs,
    struct root_walks *walks, struct root_entries *ret, struct err *err);

/* The path on the host of a file that boxes of this root see at box_path: by the last and
 * innermost bind that shows it, or else in the tree. */
void root_host_path(
    const struct root_entries *root, const char *box_path, char *ret, size_t ret_size);
