/* SPDX-License-Identifier: Apache-2.0 */

/* See pool.h. */
#include "cgroup/pool.h"

#include <errno.h>
#include <string.h>

void leaves_remove(struct leaves *l, const struct cgroup_host *host, struct cgroup_leaf *leaf)
{
    if (cgroup_leaf_remove(host, leaf) == -EBUSY && l->dying_count < LEAVES_DYING)
        l->dying[l->dying_count++] = *leaf;
}

/* Takes the leaf that has waited longest: the kernel has had the most time to free the memory
 * of its last box. */
static struct cgroup_leaf pick_used(struct leaves *l)
{
    struct cgroup_leaf leaf = l->used[0];
    memmove(l->used, l->used + 1, --l->used_count * sizeof(leaf));
    return leaf;
}

void leaves_take(struct leaves *l, const struct cgroup_host *host,
    const struct spawn_limits *limits, struct cgroup_leaf *leaf)
{
    while (l->used_count) {
        *leaf = pick_used(l);
        if (cgroup_leaf_renew(host, limits, leaf) &&
            cgroup_leaf_limit(host, limits, 0, leaf) == 0)
            return;
        leaves_remove(l, host, leaf);
        cgroup_leaf_init(leaf);
    }
    if (l->spare_count)
        *leaf = l->spare[--l->spare_count];
}

void leaves_keep(
    struct leaves *l, const struct cgroup_host *host, const struct cgroup_leaf *leaf)
{
    if (l->used_count == l->used_max) {
        struct cgroup_leaf oldest = pick_used(l);
        leaves_remove(l, host, &oldest);
    }
    l->used[l->used_count++] = *leaf;
}

bool leaves_prepare(struct leaves *l, const struct cgroup_host *host)
{
    if (l->spare_count == LEAVES_SPARE ||
        cgroup_leaf_prepare(host, &l->spare[l->spare_count]) < 0)
        return false;
    l->spare_count++;
    return true;
}

void leaves_sweep(struct leaves *l, const struct cgroup_host *host)
{
    for (unsigned i = 0; i < l->dying_count;) {
        if (cgroup_leaf_remove(host, &l->dying[i]) == -EBUSY)
            i++;
        else
            l->dying[i] = l->dying[--l->dying_count];
    }
}

void leaves_clear(struct leaves *l, const struct cgroup_host *host)
{
    while (l->spare_count)
        leaves_remove(l, host, &l->spare[--l->spare_count]);
    while (l->used_count)
        leaves_remove(l, host, &l->used[--l->used_count]);
}
