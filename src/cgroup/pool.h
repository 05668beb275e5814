/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The control groups that no box has: made ahead, left by a box and good for another, or not
 * removed yet because somebody in them is still dying. */

#include "cgroup/cgroup.h"

enum { LEAVES_SPARE = 4, LEAVES_USED = 32, LEAVES_DYING = 256 };

struct leaves {
    struct cgroup_leaf spare[LEAVES_SPARE];
    unsigned spare_count;
    struct cgroup_leaf used[LEAVES_USED]; /* oldest first */
    unsigned used_count;
    unsigned used_max; /* fewer where descriptors are few */
    struct cgroup_leaf dying[LEAVES_DYING];
    unsigned dying_count;
};

/* One with these limits if it served before, one without any if it was made ahead; none, and
 * cgroup_leaf_make() makes it, if there is neither. */
void leaves_take(struct leaves *l, const struct cgroup_host *host,
    const struct spawn_limits *limits, struct cgroup_leaf *leaf);

/* Takes one that a box has left, for another. Nobody listens to its events any more. */
void leaves_keep(
    struct leaves *l, const struct cgroup_host *host, const struct cgroup_leaf *leaf);

/* Removes one, now or once it can be. */
void leaves_remove(struct leaves *l, const struct cgroup_host *host, struct cgroup_leaf *leaf);

/* Makes one ahead; false when there are enough. */
bool leaves_prepare(struct leaves *l, const struct cgroup_host *host);

/* Tries again to remove those that could not be. */
void leaves_sweep(struct leaves *l, const struct cgroup_host *host);

/* Removes all. */
void leaves_clear(struct leaves *l, const struct cgroup_host *host);
