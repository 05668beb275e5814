/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The directories, links, generated files, device nodes and mount points of a root tree on
 * disk. The root of a box is a read-only mount of it. Paths are absolute inside the box and
 * must not lead through a link. All functions return 0 or negative errno. */

#include "lang/rootfs.h"

#include <stdbool.h>

/* Makes the parts that every root tree has: /box, /tmp, /dev and so on. Device nodes that
 * cannot be made become entries that bind the host's nodes. */
int root_tree_start(int tree_fd, struct root_entries *entries);

int root_tree_parents(int tree_fd, const char *path); /* all but the last component */
int root_tree_dir(int tree_fd, const char *path);
int root_tree_link(int tree_fd, const char *path, const char *target);
int root_tree_file(int tree_fd, const char *path, const char *text);

/* Adds an entry to the list; -ENAMETOOLONG or -E2BIG when it does not fit. */
int root_entry_add(
    struct root_entries *entries, uint32_t kind, const char *path, const char *source);
