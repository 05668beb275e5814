/* SPDX-License-Identifier: Apache-2.0 */

/* The spawner's own group in each tree. hermes-setup finds the trees and makes the group
 * (setup/cgroups.c); leaf.c handles the leaves in it. */

#include "cgroup/cgroup.h"

#include "base/cleanup.h"
#include "base/str.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

int cgroup_host_open_to(struct cgroup_host *host, gid_t group)
{
    for (unsigned i = 0; i < host->count; i++) {
        struct cgroup_tree *tree = &host->trees[i];
        if (!(tree->use & TREE_KILL))
            continue;
        int r = cgroup_give(tree->fd, group);
        if (r < 0)
            return r;
        tree->group = group;
    }
    return 0;
}

DIR *cgroup_list(int fd)
{
    int again = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = again < 0 ? NULL : fdopendir(again);
    if (!dir)
        close_fd(&again);
    return dir;
}

void cgroup_remove_children(int fd)
{
    cleanup_closedir DIR *dir = cgroup_list(fd);
    for (struct dirent *e; dir && (e = readdir(dir));) {
        if (str_has_prefix(e->d_name, CGROUP_PREFIX))
            (void)unlinkat(fd, e->d_name, AT_REMOVEDIR);
    }
}

/* The first tree goes last, as with leaves. */
int cgroup_host_unnest(struct cgroup_host *host)
{
    for (unsigned i = host->count; i-- > 0;) {
        struct cgroup_tree *tree = &host->trees[i];
        if (!tree->name[0])
            continue;
        if (tree->fd != tree->top_fd)
            cgroup_remove_children(tree->fd);
        if (unlinkat(tree->top_fd, tree->name, AT_REMOVEDIR) < 0 && errno != ENOENT)
            return -errno;
        if (tree->fd != tree->top_fd)
            (void)close(tree->fd);
        tree->fd = tree->top_fd;
        tree->name[0] = '\0';
        tree->group = 0;
    }
    return 0;
}
