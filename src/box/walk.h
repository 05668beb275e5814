/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Walks a tree that untrusted code made and, in a session, still changes: depth first, one open
 * directory per level, links never followed, with bounds on depth, entries and time. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { WALK_MAX_DEPTH = 32 };

struct walk;

/* Called for each entry with its directory, its name there and its d_type; walk->path is its
 * path below the tree. Returns 0, WALK_SKIP to stay out of a directory, or a negative errno,
 * which ends the walk. */
typedef int walk_entry(struct walk *walk, int dir_fd, const char *name, unsigned char type);
enum { WALK_SKIP = 1 };

struct walk {
    walk_entry *entry;
    walk_entry *leave; /* called for a directory after its entries; may be NULL */
    void *context;
    unsigned max_depth;   /* 1: only the entries of the top directory; 0: WALK_MAX_DEPTH */
    uint32_t max_entries; /* most entries to look at */
    uint64_t until_ms;    /* end of the walk by clock_ms(), or 0 */
    uint32_t seen;
    bool cut; /* a bound was reached, or an entry could not be looked at */
    char path[4096];
};

/* Walks the tree; takes dir_fd. Returns 0 or negative errno. */
int walk_tree(struct walk *walk, int dir_fd);
