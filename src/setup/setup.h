/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The jobs of hermes-setup (proto/setup.h). All return 0 or negative errno. */

#include "cgroup/cgroup.h"
#include "proto/setup.h"

#include <stdbool.h>
#include <stddef.h>

/* probe.c */
void setup_probe(struct setup_answer *ret);

/* ids.c. setup_read_numbers() reads the numbers of a line, separated by any of `seps`; false
 * unless there are `count`. */
int setup_map_ids(const struct setup_order *order, int *ret_lock);
bool setup_read_numbers(char *line, const char *seps, uint64_t *ret, size_t count);

/* range.c: chooses the range of ids; base 0: any. Opens the lock file in a directory that only
 * its owner may write to. */
int setup_choose_range(uint32_t base, uint32_t count, struct setup_answer *ret);
int setup_open_lock(const char *dir);

/* cgroups.c: finds the trees. Without a usable tree, mode is CGROUP_NONE and reason says why;
 * that is not an error. */
void setup_find_groups(struct cgroup_host *host, bool rootless);

/* Makes a group of the spawner's own in every tree, for all its leaves. All of them together
 * may have `processes` processes. Against the rest of the machine it weighs as much as two
 * ordinary groups per processor, because that many runs are admitted. After a failure there is
 * no group; *ret_step as of cgroup_leaf_make(). */
int setup_nest_groups(struct cgroup_host *host, uint32_t processes, uint32_t *ret_step);

/* sweep.c: removes the leaves that dead spawners left, and kills processes that are still in
 * them. */
void setup_sweep(const struct cgroup_host *host);

/* Copies the tree at `source` into memory; returns a detached mount, or negative errno. */
int setup_copy_tree(const char *source);

/* rootfs.c. setup_leave_host() comes first: it moves the caller to a private copy of its mount
 * namespace. setup_add_source() keeps a directory of the operator for the roots that follow.
 * setup_root() builds a root tree (spawn/rootfs.h) and opens its namespace; on failure
 * *ret_detail names the path. */
int setup_leave_host(void);
int setup_add_source(const struct spawn_source *source);
int setup_root(
    const struct spawn_entry *entries, uint32_t count, const char **ret_detail, int *ret_ns);

/* image.c: does a SETUP_IMAGE, for the root with the mount namespace ns_fd. ret_fds are those
 * of the answer, also after a failure. */
int setup_image(
    const struct setup_image_order *order, int ns_fd, int *ret_fds, unsigned *ret_count);

/* image.c: does a SETUP_JOIN. The caller is in the mount namespace of the box afterwards. */
int setup_join(int ns_fd, int pidfd);
