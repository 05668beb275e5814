/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A walk over a tree that a stranger made and, in a session, still changes: depth first, one
 * open directory a level, links never followed, with bounds on depth, entries and time. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { WALK_MAX_DEPTH = 32 };

struct walk;

/* Called for each entry with its directory, its name there and its d_type; walk->path is its
 * path below the tree. Returns 0, WALK_SKIP not to go into a directory, or a negative errno,
 * which ends the walk. */
typedef int walk_entry(struct walk *walk, int dir_fd, const char *name, unsigned char type);
enum { WALK_SKIP = 1 };

struct walk {
    walk_entry *entry;
    walk_entry *leave; /* called for a directory after all that is in it; may be NULL */
    void *context;
    unsigned max_depth;   /* 1: the tree's own entries only */
    uint32_t max_entries; /* looked at */
    uint64_t until_ms;    /* by clock_ms(), or 0 */
    uint32_t seen;
    bool cut; /* a bound was reached, or something could not be looked at */
    char path[4096];
};

/* Takes dir_fd. */
int walk_tree(struct walk *walk, int dir_fd);
