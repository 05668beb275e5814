/* SPDX-License-Identifier: Apache-2.0 */

/* hermes-fork: started by the spawner for one job about the copy of a session (proto/copy.h).
 * It has the spawner's rights and nothing of its memory. */

#include "fork/fork.h"

#include "base/os/sys.h"

#include <sys/prctl.h>

/* Fills in what a leaf and the trees need for fork_join(), freezing, moving and listing. */
static void open_groups(struct fork_work *w)
{
    const struct copy_order *o = &w->order;
    cgroup_leaf_init(&w->leaf);
    cgroup_leaf_init(&w->parent_leaf);
    w->host.count = o->tree_count;
    for (unsigned i = 0; i < o->tree_count; i++) {
        w->host.trees[i] = (struct cgroup_tree){
            .use = o->trees[i].use, .v2 = o->trees[i].is_v2, .fd = -1, .top_fd = -1};
        w->host.use |= o->trees[i].use;
        w->leaf.fds[i] = COPY_LEAF_FD + (int)i;
        w->parent_leaf.fds[i] = COPY_PARENT_LEAF_FD + (int)i;
    }
}

int fork_join(const struct fork_work *w)
{
    int fds[CGROUP_MAX_TREES];
    int count = cgroup_leaf_open_joins(&w->host, &w->leaf, true, fds);
    int r = count < 0 ? count : 0;
    for (int i = 0; i < count; i++) {
        r = r < 0 ? r : sys_cgroup_join(fds[i]);
        (void)close(fds[i]);
    }
    return r;
}

int main(void)
{
    static struct fork_work w = {
        .users_fd = -1, .pidfd = -1, .proc_fd = -1, .from_fds = {-1, -1, -1}};
    const struct copy_order *o = &w.order;
    if (read(COPY_ORDER_FD, &w.order, sizeof(w.order)) != (ssize_t)sizeof(w.order) ||
        o->protocol != SPAWN_PROTOCOL || o->tree_count > CGROUP_MAX_TREES)
        return 1;
    (void)close(COPY_ORDER_FD);
    /* A program that is executed by descriptor is called by its number. */
    (void)prctl(PR_SET_NAME, "hermes-fork", 0, 0, 0);
    /* No program that a child executes needs these descriptors. */
    if (sys_close_range(COPY_LIFE_FD, COPY_END_FD - 1, CLOSE_AT_EXEC) < 0)
        return 1;
    open_groups(&w);
    if (o->job == COPY_MAKE)
        fork_make(&w);
    if (o->job == COPY_FILES)
        fork_serve_files(&w);
    if (o->job == COPY_TERMINAL)
        fork_serve_terminal(&w);
    return 1;
}
