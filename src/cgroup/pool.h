/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The leaves that no box has: spare ones made ahead, used ones that a box has left and another
 * may take, and dying ones that cannot be removed yet because a process in them is still
 * dying. */

#include "cgroup/cgroup.h"

/* Number of leaves of each kind. LEAVES_DYING: leaves beyond it are left to the sweep of the
 * next spawner. */
enum { LEAVES_SPARE = 4, LEAVES_USED = 32, LEAVES_DYING = 256 };

struct leaves {
    struct cgroup_leaf spare[LEAVES_SPARE];
    unsigned spare_count;
    struct cgroup_leaf used[LEAVES_USED]; /* oldest first */
    unsigned used_count;
    unsigned used_max; /* at most LEAVES_USED; fewer where descriptors are few */
    struct cgroup_leaf dying[LEAVES_DYING];
    unsigned dying_count;
};

/* Fills *leaf with a used leaf that got these limits, else with a spare leaf without limits. If
 * there is neither, *leaf stays empty and cgroup_leaf_make() makes one. */
void leaves_take(struct leaves *l, const struct cgroup_host *host,
    const struct spawn_limits *limits, struct cgroup_leaf *leaf);

/* Keeps a leaf that a box has left. Its descriptors must not be in epoll any more. */
void leaves_keep(
    struct leaves *l, const struct cgroup_host *host, const struct cgroup_leaf *leaf);

/* Removes a leaf, now or as soon as possible. */
void leaves_remove(struct leaves *l, const struct cgroup_host *host, struct cgroup_leaf *leaf);

/* Makes one spare leaf; false when there are enough or it failed. */
bool leaves_prepare(struct leaves *l, const struct cgroup_host *host);

/* Tries again to remove the dying leaves. */
void leaves_sweep(struct leaves *l, const struct cgroup_host *host);

/* Removes all spare and used leaves. */
void leaves_clear(struct leaves *l, const struct cgroup_host *host);
