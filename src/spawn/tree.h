/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Root trees. Each runtime root is built once, before the seal, in a mount namespace that holds
 * nothing else: the tree at /r, the operator's directories at /m/N, the host's /proc (the
 * kernel gives a box a fresh one only where it sees a whole one) and an empty /new. The host's
 * own tree is detached, so that a box, whose namespace is a copy of this one, never has it, and
 * cloning stays cheap however many mounts the host has. */

#include "spawn/protocol.h"

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

/* Opens a tmpfs with these limits; 0 means none. Returns the detached mount. */
int tree_tmpfs(uint64_t bytes, uint64_t inodes, const char *mode, int owner, unsigned attrs);
