/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The processes below this one, read from /proc. This process is a subreaper: a descendant
 * stays one when its parent dies. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct process {
    pid_t pid, parent, group, session;
    char state;
    uint64_t start_ticks; /* clock ticks since boot */
};

struct tree {
    struct process *all; /* descendants of this process without zombies, by pid */
    size_t count;
};

int tree_read(struct tree *ret_tree);
void tree_done(struct tree *t);
#define cleanup_tree __attribute__((cleanup(tree_done)))

/* Whether `pid` is `root` or one of its descendants. */
bool tree_is_below(const struct tree *t, pid_t pid, pid_t root);
uint64_t tree_now_ticks(void);

/* Ends `root` and its descendants: SIGTERM, a wait of up to grace_ms, then SIGKILL until none
 * is left, for a bounded number of rounds. */
void tree_end(pid_t root, unsigned grace_ms);

/* Kills all descendants that started at `since_ticks` or later, except `spare`. */
void tree_kill_since(uint64_t since_ticks, pid_t spare);

/* Kills all descendants and reaps them, until there is none or `ms` are over. A subreaper
 * without a child has no descendant, so it sees that none was missed. */
void tree_kill_all(unsigned ms);
