/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Root trees. Each runtime root is built once, before the seal, in a mount namespace of its
 * own: the tree at /r, the operator's directories at /m/N, the host's /proc (the kernel gives a
 * box a fresh one only where it sees a whole one), an empty /new, and at /host the host's own
 * tree until tree_drop_host() lets go of it. A box starts in a copy of that namespace and
 * pivots from it onto a copy of the tree; nothing else stays in reach. */

#include "proto/spawn.h"

#include <stdbool.h>
#include <stdint.h>

struct tree_source {
    char path[SPAWN_PATH_MAX];
    uint32_t writable;
};

struct tree {
    int ns_fd; /* the mount namespace */
    uint32_t exec_count;
    char execs[SPAWN_MAX_EXECS][SPAWN_PATH_MAX];
};

/* Leaves the host's mount namespace for a private copy of it; call once, first. */
int tree_open(bool rootless);

/* Builds a tree. The caller is afterwards in the new namespace, with / and the working
 * directory at its top; tree_enter() goes from one to another. On failure *ret_detail names the
 * path. */
int tree_build(struct tree *tree, const struct spawn_entry *entries, uint32_t count,
    const struct tree_source *sources, uint32_t source_count, const char **ret_detail);
int tree_enter(int ns_fd);

/* Lets go of the host's tree, so that starting a box is cheap however many mounts the host has.
 * The kernel takes its time for it, which is why it is not done before somebody waits for a
 * box. The caller is afterwards in the tree's namespace. */
int tree_drop_host(const struct tree *tree);
