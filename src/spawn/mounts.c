/* SPDX-License-Identifier: Apache-2.0 */

/* The file system of one box. We are in a copy of the runtime's mount namespace (tree.h): the tree
 * is cloned, the box's own file systems are put on it, and the box moves in. Targets are our own
 * directories, addressed from the descriptor of the tree; nothing a stranger made exists yet. */

#include "spawn/inside.h"

#include "base/cleanup.h"
#include "base/str.h"
#include "spawn/ids.h"
#include "spawn/sys.h"
#include "spawn/tree.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

static int attach(int mnt_fd, int dir_fd, const char *path)
{
    return move_mount(mnt_fd, "", dir_fd, path, MOVE_MOUNT_F_EMPTY_PATH) < 0 ? -errno : 0;
}

/* A copy of the tree, attached where we can pivot into it. */
static int clone_tree(int *ret_fd)
{
    cleanup_close int fd =
        open_tree(AT_FDCWD, "r", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE);
    if (fd < 0)
        return -errno;
    int r = attach(fd, AT_FDCWD, "new");
    if (r < 0)
        return r;
    *ret_fd = take_fd(&fd);
    return 0;
}

static int mount_tmpfs(int root_fd, const char *path, const struct inside *in, unsigned attrs)
{
    const struct spawn_limits *l = &in->box->limits;
    bool open = in->box->remove & BARRIER_DISK;
    cleanup_close int fd = tree_tmpfs(open ? 0 : l->disk_bytes, open ? 0 : l->inodes,
        str_eq(path, "box") ? "0755" : "1777", BOX_PAYLOAD_ID,
        attrs | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
    return fd < 0 ? fd : attach(fd, root_fd, path);
}

static int mount_own(int root_fd, const struct inside *in)
{
    int r = mount_tmpfs(root_fd, "box", in, 0);
    if (r == 0)
        r = mount_tmpfs(root_fd, "tmp", in, 0);
    if (r == 0)
        r = mount_tmpfs(root_fd, "dev/shm", in, MOUNT_ATTR_NOEXEC);
    return r;
}

/* A path for a shared directory: below /box or /mnt, plain components only. The server has checked
 * it too; the spawner believes nobody. */
static bool mount_path_ok(const char path[SPAWN_PATH_MAX])
{
    if (!memchr(path, 0, SPAWN_PATH_MAX) ||
        !(str_has_prefix(path, "/box/") || str_has_prefix(path, "/mnt/")))
        return false;
    return str_name_problem(path + 1, strlen(path + 1)) == NULL;
}

static int mount_shared(int root_fd, const struct spawn_box_mount *m)
{
    char part[SPAWN_PATH_MAX];
    char source[16];
    if (!mount_path_ok(m->path))
        return -EINVAL;
    const char *path = m->path + 1;
    const char *slash = strchr(path, '/');
    while (slash) {
        slash = strchr(slash + 1, '/');
        size_t len = slash ? (size_t)(slash - path) : strlen(path);
        (void)snprintf(part, sizeof(part), "%.*s", (int)len, path);
        if (mkdirat(root_fd, part, 0755) < 0 && errno != EEXIST)
            return -errno;
    }
    (void)snprintf(source, sizeof(source), "m/%u", m->source);
    cleanup_close int fd =
        open_tree(AT_FDCWD, source, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE);
    if (fd < 0)
        return -errno;
    struct mount_attr attr = {.attr_set = m->writable ? 0 : MOUNT_ATTR_RDONLY};
    if (attr.attr_set &&
        mount_setattr(fd, "", AT_EMPTY_PATH | AT_RECURSIVE, &attr, sizeof(attr)) < 0)
        return -errno;
    return attach(fd, root_fd, path);
}

static int mount_all_shared(int root_fd, const struct inside *in)
{
    bool in_mnt = false;
    int r = 0;
    for (uint32_t i = 0; i < in->box->mount_count; i++)
        in_mnt = in_mnt || str_has_prefix(in->box->mounts[i].path, "/mnt/");
    if (in_mnt)
        r = mount_tmpfs(root_fd, "mnt", in, MOUNT_ATTR_NOEXEC);
    for (uint32_t i = 0; r == 0 && i < in->box->mount_count; i++)
        r = mount_shared(root_fd, &in->box->mounts[i]);
    return r;
}

/* A /proc of the box's own pid namespace: other users' processes (init) hidden, nothing but
 * processes in it, not writable. */
static int mount_proc(int root_fd, const struct inside *in)
{
    cleanup_close int fs = fsopen("proc", FSOPEN_CLOEXEC);
    if (fs < 0)
        return -errno;
    bool open = in->box->remove & BARRIER_PIDNS_PROC;
    if (!open &&
        (fsconfig(fs, FSCONFIG_SET_STRING, "hidepid", "invisible", 0) < 0 ||
            fsconfig(fs, FSCONFIG_SET_STRING, "subset", "pid", 0) < 0))
        return -errno;
    if (fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
        return -errno;
    unsigned attrs = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC;
    cleanup_close int fd = fsmount(fs, FSMOUNT_CLOEXEC, open ? attrs : attrs | MOUNT_ATTR_RDONLY);
    return fd < 0 ? -errno : attach(fd, root_fd, "proc");
}

/* Pivots onto the tree and lets go of the old root, host /proc and all. */
static int pivot(int root_fd)
{
    if (fchdir(root_fd) < 0)
        return -errno;
    int r = sys_pivot_root(".", ".");
    if (r < 0)
        return r;
    if (umount2(".", MNT_DETACH) < 0 || chdir("/box") < 0)
        return -errno;
    char cwd[16];
    return getcwd(cwd, sizeof(cwd)) && str_eq(cwd, "/box") ? 0 : -ENOENT;
}

int mounts_enter(const struct inside *in, uint32_t *ret_step)
{
    int r;
    cleanup_close int root = -1;
    *ret_step = STEP_TREE;
    if ((r = clone_tree(&root)) < 0)
        return r;
    *ret_step = STEP_TMPFS;
    if ((r = mount_own(root, in)) < 0)
        return r;
    *ret_step = STEP_MOUNT;
    if ((r = mount_all_shared(root, in)) < 0)
        return r;
    *ret_step = STEP_PROC;
    if ((r = mount_proc(root, in)) < 0)
        return r;
    *ret_step = STEP_PIVOT;
    return pivot(root);
}
