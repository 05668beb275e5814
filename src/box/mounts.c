/* SPDX-License-Identifier: Apache-2.0 */

/* The file system of one box. Box init is in a copy of the root's mount namespace
 * (spawn/rootfs.h): it clones the tree, mounts the box's own file systems on it, and moves in.
 * Targets are opened from the descriptor of the tree. Untrusted files exist only in shared
 * directories, where another run may have planted links and may add one at any moment. So paths
 * below them are walked by descriptor, one component at a time, and no link is followed. */

#include "box/inside.h"

#include "base/cleanup.h"
#include "base/os/sys.h"
#include "base/str.h"
#include "box/mount_fs.h"
#include "proto/terminal.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

/* Whether the box's root is the top of its mount; else ROOT_TREE in it is (proto/spawn.h). */
static bool is_top(const struct inside *in)
{
    return in->box->flags & (BOX_FORKS | BOX_ROOT);
}

static int open_mount(const struct inside *in)
{
    const struct spawn_limits *l = &in->box->limits;
    if (!(in->box->flags & BOX_ROOT))
        return sys_tree_clone(AT_FDCWD, "r");
    return mount_fs_tmpfs(
        l->disk_bytes, l->inodes, "0755", (int)drop_payload_id(in), ATTR_NOSUID | ATTR_NODEV);
}

/* With BOX_ROOT: shows the image in the empty root, and our devices. No name of this root leads
 * into the image, so there is no link to follow. */
static int fill_root(int root_fd)
{
    static const char *const dirs[] = {"box", "tmp", "proc", "dev", IMAGE_BASE};
    static const struct {
        const char *source, *target;
    } parts[] = {{"/r", IMAGE_BASE}, {"/r/dev", "dev"}};
    int r = 0;
    for (size_t i = 0; i < sizeof(dirs) / sizeof(dirs[0]); i++) {
        if (mkdirat(root_fd, dirs[i], 0755) < 0)
            return -errno;
    }
    for (size_t i = 0; r == 0 && i < sizeof(parts) / sizeof(parts[0]); i++) {
        cleanup_close int part = sys_tree_clone(AT_FDCWD, parts[i].source);
        r = part < 0 ? part : sys_mount_attach(part, root_fd, parts[i].target);
    }
    return r;
}

/* Makes the tree of the copy the working directory. */
static int clone_tree(const struct inside *in, int *ret_mount, int *ret_tree)
{
    cleanup_close int fd = open_mount(in);
    if (fd < 0)
        return fd;
    int r = sys_mount_attach(fd, AT_FDCWD, "new");
    if (r == 0 && in->box->flags & BOX_ROOT)
        r = fill_root(fd);
    if (r < 0)
        return r;
    cleanup_close int tree =
        openat(fd, is_top(in) ? "." : ROOT_TREE, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (tree < 0 || fchdir(tree) < 0)
        return -errno;
    *ret_mount = take_fd(&fd);
    *ret_tree = take_fd(&tree);
    return 0;
}

/* Uses mount(2), which is one call where fsopen() and its companions are eleven: every box has
 * three of these. */
static int mount_tmpfs(
    const char *path, const char *mode, const struct inside *in, unsigned long flags)
{
    const struct spawn_limits *l = &in->box->limits;
    unsigned id = drop_payload_id(in);
    char options[128];
    int len = snprintf(options, sizeof(options), "mode=%s,uid=%u,gid=%u", mode, id, id);
    if (!(in->box->remove & BARRIER_DISK))
        (void)snprintf(options + len, sizeof(options) - (size_t)len,
            ",size=%llu,nr_inodes=%llu", (unsigned long long)l->disk_bytes,
            (unsigned long long)l->inodes);
    return mount("tmpfs", path, "tmpfs", flags | MS_NOSUID | MS_NODEV, options) < 0 ? -errno
                                                                                    : 0;
}

/* Only a session has terminals. */
static int mount_terminals(int root_fd, const struct inside *in)
{
    if (!(in->box->flags & BOX_CHANNEL))
        return 0;
    cleanup_close int fd = mount_fs_devpts(TERMINAL_PTYS);
    return fd < 0 ? fd : sys_mount_attach(fd, root_fd, "dev/pts");
}

static int mount_own(int root_fd, const struct inside *in)
{
    int r = mount_tmpfs("box", "0755", in, 0);
    if (r == 0)
        r = mount_tmpfs("tmp", "1777", in, 0);
    if (r == 0)
        r = mount_tmpfs("dev/shm", "1777", in, MS_NOEXEC);
    if (r == 0)
        r = mount_terminals(root_fd, in);
    return r;
}

/* Whether this is a valid path for a shared directory: below /box or /mnt, plain components
 * only. The server has checked it, too, but may have been taken over. */
static bool mount_path_ok(const char path[SPAWN_PATH_MAX])
{
    if (!memchr(path, 0, SPAWN_PATH_MAX) ||
        !(str_has_prefix(path, "/box/") || str_has_prefix(path, "/mnt/")))
        return false;
    return str_name_problem(path + 1, strlen(path + 1)) == NULL;
}

static int open_dir(int dir_fd, const char *name)
{
    return sys_openat2(dir_fd, name, O_PATH | O_DIRECTORY | O_NOFOLLOW, 0,
        RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS);
}

/* Makes the mount point for a shared directory or file, if it does not exist, and opens it. */
static int open_target(int root_fd, const char *path, bool is_dir)
{
    char parts[SPAWN_PATH_MAX];
    char *save = NULL;
    cleanup_close int at = open_dir(root_fd, ".");
    (void)snprintf(parts, sizeof(parts), "%s", path);
    for (char *name = strtok_r(parts, "/", &save); name && at >= 0;) {
        char *next = strtok_r(NULL, "/", &save);
        if (!next && !is_dir) {
            int fd =
                openat(at, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0444);
            return fd < 0 ? -errno : fd;
        }
        if (mkdirat(at, name, 0755) < 0 && errno != EEXIST)
            return -errno;
        int below = open_dir(at, name);
        (void)close(at);
        at = below;
        name = next;
    }
    return take_fd(&at);
}

/* made_fd: a writable directory that the spawner has prepared with its owner mapped
 * (spawn/idmap.h), or -1. */
static int mount_shared(int root_fd, const struct spawn_box_mount *m, int made_fd)
{
    char source[16];
    struct stat st = {0};
    if (!mount_path_ok(m->path))
        return -EINVAL;
    (void)snprintf(source, sizeof(source), "/m/%u", m->source);
    cleanup_close int fd = made_fd >= 0 ? made_fd : sys_tree_clone(AT_FDCWD, source);
    int r = fd < 0 ? fd : m->writable ? 0 : sys_mount_attrs(fd, ATTR_RDONLY, 0, true);
    if (r == 0 && fstat(fd, &st) < 0)
        r = -errno;
    if (r < 0)
        return r;
    cleanup_close int target = open_target(root_fd, m->path + 1, S_ISDIR(st.st_mode));
    return target < 0 ? target : sys_mount_attach(fd, target, "");
}

/* *ret_which is the number of the directory that failed, from 1 on. */
static int mount_all_shared(int root_fd, const struct inside *in, uint32_t *ret_which)
{
    bool in_mnt = false;
    int r = 0;
    for (uint32_t i = 0; i < in->box->mount_count; i++)
        in_mnt = in_mnt || str_has_prefix(in->box->mounts[i].path, "/mnt/");
    if (in_mnt)
        r = mount_tmpfs("mnt", "1777", in, MS_NOEXEC);
    for (uint32_t i = 0; r == 0 && i < in->box->mount_count; i++) {
        *ret_which = i + 1;
        r = mount_shared(root_fd, &in->box->mounts[i], in->mount_fds[i]);
    }
    return r;
}

/* Mounts a /proc of the box's own pid namespace: processes of other users (box init) are
 * hidden, nothing but processes is in it, and it is read-only. */
static int mount_proc(int root_fd, const struct inside *in)
{
    cleanup_close int fs = sys_fs_open("proc");
    bool open = in->box->remove & BARRIER_PIDNS_PROC;
    int r = fs < 0 ? fs : 0;
    if (r == 0 && !open && (r = sys_fs_set(fs, "hidepid", "invisible")) == 0)
        r = sys_fs_set(fs, "subset", "pid");
    if (r < 0 || (r = sys_fs_create(fs)) < 0)
        return r;
    unsigned attrs = ATTR_NOSUID | ATTR_NODEV | ATTR_NOEXEC;
    cleanup_close int fd = sys_fs_mount(fs, open ? attrs : attrs | ATTR_RDONLY);
    return fd < 0 ? fd : sys_mount_attach(fd, root_fd, "proc");
}

/* Pivots onto the mount, detaches the old root with the host's /proc, and enters the tree. */
static int pivot(int mount_fd, const struct inside *in)
{
    if (fchdir(mount_fd) < 0)
        return -errno;
    int r = sys_pivot_root(".", ".");
    if (r < 0)
        return r;
    if (umount2(".", MNT_DETACH) < 0 || (!is_top(in) && chroot(ROOT_TREE) < 0) ||
        chdir("/box") < 0)
        return -errno;
    char cwd[16];
    return getcwd(cwd, sizeof(cwd)) && str_eq(cwd, "/box") ? 0 : -ENOENT;
}

int mounts_enter(const struct inside *in, uint32_t *ret_step, uint32_t *ret_which)
{
    int r;
    cleanup_close int mount = -1;
    cleanup_close int root = -1;
    *ret_which = 0;
    *ret_step = STEP_TREE;
    if ((r = clone_tree(in, &mount, &root)) < 0)
        return r;
    *ret_step = STEP_TMPFS;
    if ((r = mount_own(root, in)) < 0)
        return r;
    *ret_step = STEP_MOUNT;
    if ((r = mount_all_shared(root, in, ret_which)) < 0)
        return r;
    *ret_step = STEP_PROC;
    if ((r = mount_proc(root, in)) < 0)
        return r;
    *ret_step = STEP_PIVOT;
    return pivot(mount, in);
}
