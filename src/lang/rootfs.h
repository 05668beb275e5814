/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The curated tree that a box sees. The programs of /usr/bin are links (or copies, where links
 * are not possible) collected once in $HERMES_STATE_DIR/roots, so that a box sees the listed
 * tools and never the host's /usr/bin with its set-uid programs; libraries and language
 * directories are bound read-only; /etc is made up. What every box has is runtimes/base.json.
 */

#include "base/err.h"
#include "lang/runtime.h"
#include "proto/spawn.h"

struct root_entries {
    struct spawn_entry *items;
    size_t count;
    int lock_fd;  /* keeps the tool directory from being cleaned up as stale */
    char key[96]; /* name of the tool directory: another one when the toolchain changes */
};

/* Releases the lock too: call it when no box of this root can be running any more. Accepts a
 * struct that root_entries_init made. */
void root_entries_init(struct root_entries *entries);
void root_entries_done(struct root_entries *entries);

/* $HERMES_STATE_DIR, else /var/lib/hermes as root, else $XDG_STATE_HOME/hermes or
 * ~/.local/state/hermes. Created 0700 if missing. Returns a descriptor and the path. */
int root_state_dir(char **ret_path, struct err *err);

/* Entries for SPAWN_ROOT. Builds or reuses the tool directory; safe against concurrent builders
 * and kill -9 (made under a temporary name and renamed into place). `name` is a short word for
 * the directory's name, such as "c-compile". */
int root_describe(
    const struct root_spec *spec, const char *name, struct root_entries *ret, struct err *err);
