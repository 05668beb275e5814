/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The tree of a root as it lies on disk: directories, links, made-up files, device nodes and
 * places to mount on. A box's own root is a read-only mount of it. Paths are absolute inside
 * the box; none may lead through a link. All return 0 or negative errno. */

#include "lang/rootfs.h"

#include <stdbool.h>

/* What every root has, whatever its language: /box, /tmp, /dev and so on. Device nodes that
 * cannot be made become entries that bind the host's. */
int root_tree_start(int tree_fd, struct root_entries *entries);

int root_tree_parents(int tree_fd, const char *path); /* all above the last component */
int root_tree_dir(int tree_fd, const char *path);
int root_tree_link(int tree_fd, const char *path, const char *target);
int root_tree_file(int tree_fd, const char *path, const char *text);

/* Adds to the list; -ENAMETOOLONG or -E2BIG when it does not fit. */
int root_entry_add(
    struct root_entries *entries, uint32_t kind, const char *path, const char *source);
