/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The processes below this one, from /proc. This process is a subreaper: whatever forks and
 * whichever parent dies, descendants stay descendants. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct process {
    pid_t pid, parent, group;
    char state;
    uint64_t start_ticks; /* since boot */
};

struct tree {
    struct process *all; /* descendants of this process, zombies left out */
    size_t count;
};

int tree_read(struct tree *ret_tree);
void tree_done(struct tree *t);
#define cleanup_tree __attribute__((cleanup(tree_done)))

/* Is `pid` the process `root` or below it? */
bool tree_is_below(const struct tree *t, pid_t pid, pid_t root);
uint64_t tree_now_ticks(void);

/* Ends `root` and all below it: SIGTERM, up to grace_ms, SIGKILL until none is left (bounded).
 */
void tree_end(pid_t root, unsigned grace_ms);

/* Kills all below this process but `spare` that started at `since_ticks` or later. */
void tree_kill_since(uint64_t since_ticks, pid_t spare);
