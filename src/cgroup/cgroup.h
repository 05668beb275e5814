/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Control groups: one leaf per box, named hermes-<128 random bits>. The leaves of a server lie
 * in a group of its own, which limits all of them together. The machine may have v2, v1 or both
 * (hybrid: limits in v1, cgroup.kill and clone-into in v2); callers do not see which. A tree is
 * one cgroup hierarchy.
 *
 * Another box may use a leaf once it is empty, no limit was hit in it, and its counters have
 * been reset (cgroup_leaf_renew()): making and removing a leaf takes a tenth of a warm run's
 * CPU time.
 *
 * A leaf is flock()ed in every tree for as long as its spawner lives. So any spawner can tell a
 * live box from what a killed spawner left: the lock is on the very directory that it protects,
 * and it goes when its owner dies.
 *
 * Every int function returns 0 or negative errno, unless it says otherwise. */

#include "proto/box.h"
#include "proto/spawn.h"

#include <dirent.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define CGROUP_PREFIX "hermes-"

enum { CGROUP_NAME = sizeof(CGROUP_PREFIX) + 32 };

/* What a cgroup hierarchy of the machine is used for. */
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
    int fd; /* the directory in which leaves are made: top_fd, or a group of our own in it */
    int top_fd;             /* shared with other spawners */
    char name[CGROUP_NAME]; /* name of our own group; "" without one */
    gid_t group;            /* processes with this group id may clone into leaves; 0 for none */
};

struct cgroup_host {
    enum spawn_cgroup mode;
    unsigned use; /* union of the uses of all trees */
    unsigned count;
    struct cgroup_tree trees[CGROUP_MAX_TREES];
    uint32_t processes; /* process limit of our own group; 0 without */
    int reason;         /* why a tree is missing or cannot do everything: negative errno */
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
    int fds[CGROUP_MAX_TREES];      /* the leaf directory in each tree; -1 when absent */
    int oom_fd;                     /* v1: eventfd, see cgroup_leaf_watch_oom(); else -1 */
    int counter_fds[COUNTER_COUNT]; /* files opened ahead, or -1 */
    int weight_fd;                  /* its weight file, opened at the first write, or -1 */
    uint32_t weight; /* last value of cgroup_leaf_weigh(); 0: the kernel's default */
    int lent_fds[CGROUP_MAX_TREES + 1]; /* see cgroup_leaf_lend() */
    unsigned lent_count, join_count;
    struct spawn_limits limits;
    bool is_limited;    /* `limits` are set in all trees */
    uint64_t before_ns; /* CPU time of the boxes that had the leaf before */
};

struct cgroup_usage {
    uint64_t cpu_ns;
    uint64_t peak_bytes;
    bool oom_kill; /* a process in it was killed for lack of memory */
    bool is_limit; /* oom_kill, and the leaf had reached its own limit: not only the host or a
                      group above was short */
    bool pids_max; /* a process was refused by the leaf's own limit */
    bool crowded;  /* a process was refused by the limit of all boxes or of the host */
};

/* Lets processes with this group id in the leaves of our own group clone into any of its leaves
 * (zygotes do). Entering a v2 group after the clone takes a global lock of the kernel, and
 * waits milliseconds if none was moved lately. */
int cgroup_host_open_to(struct cgroup_host *host, gid_t group);

/* Whether there is a group of our own (setup/cgroups.c makes it). */
bool cgroup_host_is_nested(const struct cgroup_host *host);

/* The number of processes that the limit of our own group has refused. v2 since Linux 6.11
 * counts them in the group; other kernels count them in the leaf, and the result is 0 (struct
 * cgroup_usage). */
uint64_t cgroup_host_refusals(const struct cgroup_host *host);

/* Removes our own group; -EBUSY while it has leaves. */
int cgroup_host_unnest(struct cgroup_host *host);

/* Lists the groups in a directory; NULL when it cannot be opened. */
DIR *cgroup_list(int fd);

/* Removes the leaves in a spawner's group in which no process is. */
void cgroup_remove_children(int fd);

/* Lets processes with this group id move into the group of that directory. */
int cgroup_give(int fd, gid_t group);

/* Index of the first tree that has one of the uses in `use`, or -1. */
int cgroup_tree_with(const struct cgroup_host *host, unsigned use);

/* Makes and locks a group with that name where the tree's leaves are made. Returns -EAGAIN when
 * another spawner's sweep took it for a dead one before it was locked: take another name. */
int cgroup_make_locked(const struct cgroup_tree *tree, const char *name, int *ret_fd);
void cgroup_random_name(char out[CGROUP_NAME]);

/* Makes *leaf an empty struct: no directory, no descriptor. */
void cgroup_leaf_init(struct cgroup_leaf *leaf);

/* Makes a leaf ahead, without limits, with all its counters open. */
int cgroup_leaf_prepare(const struct cgroup_host *host, struct cgroup_leaf *leaf);

/* Opens the counters that are not open yet. Negative errno when no descriptor was free: a
 * counter that cannot be read would be taken for 0. */
int cgroup_leaf_open_counters(const struct cgroup_host *host, struct cgroup_leaf *leaf);

/* Gives a leaf these limits, unless it has them already. `skip` as in cgroup_leaf_make(). */
int cgroup_leaf_limit(const struct cgroup_host *host, const struct spawn_limits *limits,
    uint32_t skip, struct cgroup_leaf *leaf);

/* Makes the leaf, unless it exists already, and sets its limits. `skip` holds the enum
 * spawn_barrier bits that a control of a test leaves out. *ret_step is STEP_CGROUP or
 * STEP_CGROUP_LIMIT; after a failure nothing is left. */
int cgroup_leaf_make(const struct cgroup_host *host, const struct spawn_limits *limits,
    uint32_t skip, struct cgroup_leaf *leaf, uint32_t *ret_step);

/* Makes a leaf that a box has left as good as new for a box with these limits, which it does
 * not set. False when the leaf cannot be renewed, when processes or too much memory are left in
 * it, or when one of its counters would count for the new box. The caller then removes it. */
bool cgroup_leaf_renew(const struct cgroup_host *host, const struct spawn_limits *limits,
    struct cgroup_leaf *leaf);

/* The directory to clone into, or -1 when the machine has no v2 tree. */
int cgroup_leaf_into_fd(const struct cgroup_host *host, const struct cgroup_leaf *leaf);

/* Opens the files through which a new process puts itself into the leaf, for every tree if
 * `all`, else for those that clone-into does not cover. Returns how many. The kernel takes a
 * global lock, and may wait milliseconds for it, when one process moves another, but not when a
 * thread moves itself. */
int cgroup_leaf_open_joins(const struct cgroup_host *host, const struct cgroup_leaf *leaf,
    bool all, int fds[CGROUP_MAX_TREES]);

/* Fills `fds` with what a zygote needs to put a box into the leaf: the files to join and, where
 * it may clone into the leaf, the directory as the last one. The leaf keeps owning them.
 * Returns how many; *ret_joins is the number of files to join. */
int cgroup_leaf_lend(const struct cgroup_host *host, struct cgroup_leaf *leaf,
    int fds[CGROUP_MAX_TREES + 1], unsigned *ret_joins);

/* v1: makes oom_fd readable when a kill by the memory limit is possible: the kernel is about to
 * kill, for this limit or that of a group above, or the leaf was removed. Call it before the
 * program may run; `skip` as above. */
int cgroup_leaf_watch_oom(
    const struct cgroup_host *host, struct cgroup_leaf *leaf, uint32_t skip);

/* Moves a process into the leaf, in every tree. */
int cgroup_leaf_move(const struct cgroup_host *host, const struct cgroup_leaf *leaf, pid_t pid);

/* Freezes or thaws everything in the leaf. Freezing takes the kernel a moment;
 * cgroup_leaf_settle() waits for it, but gives up with -ETIMEDOUT. */
int cgroup_leaf_freeze(
    const struct cgroup_host *host, const struct cgroup_leaf *leaf, bool is_frozen);
int cgroup_leaf_settle(const struct cgroup_host *host, const struct cgroup_leaf *leaf);

/* Lists the processes in the leaf, at most `max`; returns how many, -E2BIG if there are
 * more. */
int cgroup_leaf_pids(const struct cgroup_host *host, const struct cgroup_leaf *leaf,
    pid_t *ret_pids, unsigned max);

/* Sets the leaf's share of the processors relative to other leaves in our own group, while they
 * compete: 1 to WEIGHT_MAX. Does nothing without such a group: the other groups there use other
 * weights. */
enum { WEIGHT_MAX = 1 << 16 };
void cgroup_leaf_weigh(
    const struct cgroup_host *host, struct cgroup_leaf *leaf, uint32_t weight);

int cgroup_leaf_kill(const struct cgroup_host *host, const struct cgroup_leaf *leaf);
uint64_t cgroup_leaf_memory(const struct cgroup_host *host, const struct cgroup_leaf *leaf);
/* Number of processes and threads in the leaf; 0 when nothing counts them. */
uint64_t cgroup_leaf_tasks(const struct cgroup_host *host, const struct cgroup_leaf *leaf);
/* Memory that the leaf may still use; UINT64_MAX without a limit, 0 when that is not known. */
uint64_t cgroup_leaf_room(const struct cgroup_host *host, const struct cgroup_leaf *leaf);
/* False when the leaf directory was removed: nothing limits the processes that were in it. */
bool cgroup_leaf_exists(const struct cgroup_host *host, const struct cgroup_leaf *leaf);
void cgroup_leaf_usage(
    const struct cgroup_host *host, const struct cgroup_leaf *leaf, struct cgroup_usage *ret);

/* Closes the descriptors and removes the directories; -EBUSY while a process is still dying:
 * call again later. */
int cgroup_leaf_remove(const struct cgroup_host *host, struct cgroup_leaf *leaf);
