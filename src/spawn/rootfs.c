/* SPDX-License-Identifier: Apache-2.0 */

/* See rootfs.h. */

#include "spawn/rootfs.h"

#include <errno.h>
#include <sched.h>
#include <string.h>
#include <sys/mount.h>

int tree_note_execs(struct tree *tree, const struct spawn_entry *entries, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (entries[i].kind != ENTRY_EXEC)
            continue;
        if (tree->exec_count == SPAWN_MAX_EXECS)
            return -E2BIG;
        memcpy(tree->execs[tree->exec_count++], entries[i].path, SPAWN_PATH_MAX);
    }
    return 0;
}

int tree_enter(int ns_fd)
{
    return setns(ns_fd, CLONE_NEWNS) < 0 ? -errno : 0;
}

int tree_drop_host(const struct tree *tree)
{
    int r = tree_enter(tree->ns_fd);
    return r < 0 ? r : umount2("host", MNT_DETACH) < 0 ? -errno : 0;
}
