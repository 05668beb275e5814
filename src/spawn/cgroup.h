/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Control groups: one leaf per box, hermes-<128 random bits>. Those of a server lie in a group
 * of its own, which limits what all of them have together. The machine may have v2, v1 or both
 * (hybrid: limits in v1, cgroup.kill and clone-into in v2); callers do not see which. A leaf
 * may serve another box once nobody is in it, nothing of what it counts was reached, and its
 * counters have been set back (cgroup_leaf_renew()): to make and remove one takes a tenth of a
 * warm run's processor time. A leaf is flock()ed for as long as its spawner lives, in every
 * tree: so anybody can tell a live box from what a killed spawner left, the lock is on the very
 * thing it protects, and it dies with its owner. Every function returns 0 or negative errno. */

#include "spawn/protocol.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define CGROUP_PREFIX "hermes-"

enum { CGROUP_MAX_TREES = 5, CGROUP_NAME = sizeof(CGROUP_PREFIX) + 32 };

/* What a tree of the machine is used for. */
enum {
    TREE_MEMORY = 1 << 0,
    TREE_PIDS = 1 << 1,
    TREE_CPU = 1 << 2,
    TREE_CPUACCT = 1 << 3,
    TREE_KILL = 1 << 4, /* a v2 tree: cgroup.kill, clone-into, cpu.stat */
};

struct cgroup_tree {
    unsigned use;
    bool v2;
    int fd;     /* the directory in which leaves are made: */
    int top_fd; /* this one, which is shared with other spawners, or a group of our own in it */
    char name[CGROUP_NAME]; /* its name, if there is one, */
    gid_t group;            /* and who else may clone into what is in it; 0 for nobody */
};

struct cgroup_host {
    enum spawn_cgroup mode;
    unsigned use; /* union of the trees' */
    unsigned count;
    struct cgroup_tree trees[CGROUP_MAX_TREES];
    uint32_t processes; /* limit of the group of our own; 0 without */
    int reason;         /* why there is none or a part is missing: negative errno */
};

enum cgroup_counter {
    COUNTER_CPU,
    COUNTER_MEMORY,
    COUNTER_PEAK,
    COUNTER_OOM,
    COUNTER_PIDS,
    COUNTER_TASKS,
    COUNTER_MOST_TASKS,
    COUNTER_COUNT
};

struct cgroup_leaf {
    char name[CGROUP_NAME];
    int fds[CGROUP_MAX_TREES];          /* of the leaf directory in each tree; -1 when absent */
    int oom_fd;                         /* v1: eventfd, see cgroup_leaf_watch_oom(); else -1 */
    int counter_fds[COUNTER_COUNT];     /* opened ahead, or -1 */
    int weight_fd;                      /* of its weight, once that was set, or -1 */
    uint32_t weight;                    /* see cgroup_leaf_weigh(); 0: the kernel's own */
    int lent_fds[CGROUP_MAX_TREES + 1]; /* see cgroup_leaf_lend() */
    unsigned lent_count, join_count;
    struct spawn_limits limits;
    bool is_limited;    /* by all of these */
    uint64_t before_ns; /* processor time of the boxes that had it before */
};

struct cgroup_usage {
    uint64_t cpu_ns;
    uint64_t peak_bytes;
    bool oom_kill; /* somebody in it was killed for want of memory, */
    bool is_limit; /* and it has used all that its own limit allows: not the host's want alone,
                      nor that of a group above */
    bool pids_max; /* a process was refused by the leaf's own limit, */
    bool crowded;  /* or by that of all boxes or of the host */
};

/* Finds the trees. With no usable tree mode is CGROUP_NONE and reason says why; that is not an
 * error. */
void cgroup_host_open(struct cgroup_host *host, bool rootless);

/* Makes a group of our own in every tree, and has leaves made in it from now on. All that is in
 * it together may have so many processes (0: no limit), and weighs against the rest of the
 * machine as much as two usual groups for each processor: so many runs are let in. Processes in
 * its leaves that have this group id, if it is not 0, may clone into any of them (zygotes do):
 * who enters a v2 group afterwards takes a lock of the whole machine's for it, and waits
 * milliseconds if nobody did lately. After a failure there is no group; *ret_step as of
 * cgroup_leaf_make(). */
int cgroup_host_nest(
    struct cgroup_host *host, gid_t group, uint32_t processes, uint32_t *ret_step);

/* Whether there is that group. */
bool cgroup_host_is_nested(const struct cgroup_host *host);

/* How many processes its limit has refused, where the kernel tells that of the group and not of
 * the leaf: v2 since Linux 6.11. Elsewhere 0; see struct cgroup_usage. */
uint64_t cgroup_host_refusals(const struct cgroup_host *host);

/* Removes it; -EBUSY while there are leaves in it. */
int cgroup_host_unnest(struct cgroup_host *host);

/* Removes the leaves that dead spawners left, with what is still alive in them. */
void cgroup_host_sweep(const struct cgroup_host *host);

/* Index of the tree that is used for any of these, or -1. */
int cgroup_tree_with(const struct cgroup_host *host, unsigned use);

/* Makes and locks a group with that name where the tree's leaves are made. Between the two
 * somebody else's clean-up may have taken it for a dead one: -EAGAIN, take another name. */
int cgroup_make_locked(const struct cgroup_tree *tree, const char *name, int *ret_fd);
void cgroup_random_name(char out[CGROUP_NAME]);

/* A leaf that is nowhere. */
void cgroup_leaf_init(struct cgroup_leaf *leaf);

/* Makes a leaf ahead, without limits, with all opened that will be read. */
int cgroup_leaf_prepare(const struct cgroup_host *host, struct cgroup_leaf *leaf);

/* Opens what will be read and is not open yet; negative errno when there was no descriptor for
 * it: a counter that cannot be read would be taken for 0. */
int cgroup_leaf_open_counters(const struct cgroup_host *host, struct cgroup_leaf *leaf);

/* Gives a leaf these limits, unless it has them. `skip` as below. */
int cgroup_leaf_limit(const struct cgroup_host *host, const struct spawn_limits *limits,
    uint32_t skip, struct cgroup_leaf *leaf);

/* Makes the leaf, unless it was prepared, and sets its limits. `skip` holds
 * enum spawn_barrier bits a control leaves out. *ret_step tells which of STEP_CGROUP and
 * STEP_CGROUP_LIMIT failed; nothing is left then.
 */
int cgroup_leaf_make(const struct cgroup_host *host, const struct spawn_limits *limits,
    uint32_t skip, struct cgroup_leaf *leaf, uint32_t *ret_step);

/* Makes a leaf that a box has left as good as new for a box with these limits, which it does
 * not set. False when it cannot be, or there is somebody or too much memory left in it, or one
 * of its counters would be taken for the new box's: remove it. */
bool cgroup_leaf_renew(const struct cgroup_host *host, const struct spawn_limits *limits,
    struct cgroup_leaf *leaf);

/* The directory to clone into, or -1 when the machine has no v2 tree. */
int cgroup_leaf_into_fd(const struct cgroup_host *host, const struct cgroup_leaf *leaf);

/* Opens, for every tree or those that clone-into does not cover, the file through which the new
 * process puts itself into the leaf; returns how many. The kernel takes a global lock and may
 * wait milliseconds for it when somebody else moves a process, but not when one thread moves
 * itself.
 */
int cgroup_leaf_open_joins(const struct cgroup_host *host, const struct cgroup_leaf *leaf,
    bool all, int fds[CGROUP_MAX_TREES]);

/* What a zygote needs to put a box into the leaf: the joins and, where it may clone into the
 * leaf, the directory for that as the last. They are the leaf's, and stay open. Returns how
 * many they are; *ret_joins tells how many of them are joins. */
int cgroup_leaf_lend(const struct cgroup_host *host, struct cgroup_leaf *leaf,
    int fds[CGROUP_MAX_TREES + 1], unsigned *ret_joins);

/* Run by the new process itself, once per descriptor. */
int cgroup_join(int fd);

/* v1: has the leaf tell by oom_fd that it is worth a look whether its memory limit has killed:
 * the kernel is about to kill, for this limit or that of a group above, or the leaf was
 * removed. Call it before the program may run; `skip` as above. */
int cgroup_leaf_watch_oom(
    const struct cgroup_host *host, struct cgroup_leaf *leaf, uint32_t skip);

/* Moves a process there, in every tree. */
int cgroup_leaf_move(const struct cgroup_host *host, const struct cgroup_leaf *leaf, pid_t pid);

/* Stops everything in it, or lets it go on. The kernel takes a moment for the former;
 * cgroup_leaf_settle() waits for that, but not for long: -ETIMEDOUT. */
int cgroup_leaf_freeze(
    const struct cgroup_host *host, const struct cgroup_leaf *leaf, bool is_frozen);
int cgroup_leaf_settle(const struct cgroup_host *host, const struct cgroup_leaf *leaf);

/* The processes in it, at most `max`; returns how many. */
int cgroup_leaf_pids(const struct cgroup_host *host, const struct cgroup_leaf *leaf,
    pid_t *ret_pids, unsigned max);

/* The leaf's share of the processors beside that of other leaves in the group of our own, while
 * those want them too: 1 to WEIGHT_MAX. Leaves that lie outside such a group stay as they are:
 * the rest of the machine has other measures. */
enum { WEIGHT_MAX = 1 << 16 };
void cgroup_leaf_weigh(
    const struct cgroup_host *host, struct cgroup_leaf *leaf, uint32_t weight);

int cgroup_leaf_kill(const struct cgroup_host *host, const struct cgroup_leaf *leaf);
uint64_t cgroup_leaf_memory(const struct cgroup_host *host, const struct cgroup_leaf *leaf);
/* How many processes and threads it holds; 0 when nobody counts. */
uint64_t cgroup_leaf_tasks(const struct cgroup_host *host, const struct cgroup_leaf *leaf);
/* How much more the leaf may use; UINT64_MAX without a limit, 0 when it cannot be told. */
uint64_t cgroup_leaf_room(const struct cgroup_host *host, const struct cgroup_leaf *leaf);
/* False when the leaf was taken away: nothing limits who was in it. */
bool cgroup_leaf_exists(const struct cgroup_host *host, const struct cgroup_leaf *leaf);
void cgroup_leaf_usage(
    const struct cgroup_host *host, const struct cgroup_leaf *leaf, struct cgroup_usage *ret);

/* Closes the descriptors and removes the directories; -EBUSY when a process is still dying:
 * call again later. */
int cgroup_leaf_remove(const struct cgroup_host *host, struct cgroup_leaf *leaf);
