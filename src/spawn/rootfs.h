/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Root trees. Each runtime root is built once, before the seal, by hermes-setup
 * (setup/rootfs.c) in a mount namespace of its own: the tree at /r/tree (or at /r itself, see
 * ROOT_TREE), the operator's directories at /m/N, the host's /proc (the kernel lets a box mount
 * a fresh one only where a complete one is visible), an empty /new, and at /host the host's own
 * tree until tree_drop_host() detaches it. A box starts in a copy of that namespace and pivots
 * onto a copy of the tree; nothing else stays within reach. */

#include "proto/spawn.h"

#include <stdint.h>

struct tree {
    int ns_fd; /* the mount namespace; 0: there is no such tree */
    uint32_t exec_count;
    char execs[SPAWN_MAX_EXECS][SPAWN_PATH_MAX];
};

/* Keeps the paths of the tree's programs. -E2BIG: there are too many. */
int tree_note_execs(struct tree *tree, const struct spawn_entry *entries, uint32_t count);

/* Moves the caller to the namespace of a tree, with / and the working directory at its top. */
int tree_enter(int ns_fd);

/* Detaches the host's tree, so that starting a box is cheap however many mounts the host has.
 * The kernel takes long for it, so the spawner does it only when it is idle. Afterwards the
 * caller is in the tree's namespace. */
int tree_drop_host(const struct tree *tree);
