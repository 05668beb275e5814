/* SPDX-License-Identifier: Apache-2.0 */

/* Builds root trees (spawn/rootfs.h), with paths from the runtime table. Targets are opened
 * from the descriptor of the tree; openat2 refuses to leave it or to follow a link on the way.
 */

#include "setup/setup.h"

#include "base/cleanup.h"
#include "base/os/sys.h"
#include "box/mount_fs.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

enum { READ_ONLY = ATTR_RDONLY | ATTR_NOSUID | ATTR_NODEV };

/* An empty file on the stage, for ENTRY_MASK. */
#define EMPTY "empty"

/* The host's namespace, to return to for the next tree, and whether we are in a copy of it in
 * which no tree has been built yet. */
static int host_ns = -1;
static bool is_fresh;

static struct spawn_source sources[SPAWN_MAX_SOURCES];
static uint32_t source_count;

/* Containers and service managers mount over parts of /proc. The kernel lets a box mount a
 * /proc of its own only where one without such mounts is visible. So another mount of /proc is
 * laid over it, in our copy of the namespace only. Rootless, those mounts are locked and this
 * fails; then the host must not have any. */
static void uncover_proc(void)
{
    cleanup_close int proc = sys_mount_clone(AT_FDCWD, "/proc");
    if (proc >= 0)
        (void)sys_mount_attach(proc, AT_FDCWD, "/proc");
}

static int leave_host(void)
{
    if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        return -errno;
    uncover_proc();
    is_fresh = true;
    return 0;
}

int setup_leave_host(void)
{
    host_ns = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
    return host_ns < 0 ? -errno : leave_host();
}

int setup_add_source(const struct spawn_source *source)
{
    if (source_count == SPAWN_MAX_SOURCES || !memchr(source->path, 0, sizeof(source->path)))
        return -EINVAL;
    sources[source_count++] = *source;
    return 0;
}

/* Attaches a fresh tmpfs to build on, in our private namespace. It has to cover some directory.
 * It covers /proc, because no root binds anything from there and the caller holds a copy of
 * it. */
static int open_stage(void)
{
    cleanup_close int stage = mount_fs_tmpfs(65536, 128, "0755", -1, ATTR_NOSUID | ATTR_NODEV);
    if (stage < 0)
        return stage;
    int r = sys_mount_attach(stage, AT_FDCWD, "/proc");
    return r < 0 ? r : take_fd(&stage);
}

static int open_in_tree(int root_fd, const char *path)
{
    return sys_openat2(root_fd, path, O_PATH, 0, RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS);
}

/* Shows `source` at `path` of the tree. The mount point exists: lang/rootfs_skeleton.c made it,
 * or a directory that was bound before has it. */
static int bind(
    int root_fd, int source_fd, const char *source, const char *path, unsigned attrs)
{
    cleanup_close int from = sys_tree_clone(source_fd, source);
    int r = from < 0 ? from : sys_mount_attrs(from, attrs, 0, true);
    if (r < 0)
        return r;
    cleanup_close int target = open_in_tree(root_fd, path);
    return target < 0 ? target : sys_mount_attach(from, target, "");
}

/* A detached mount of the directory above the tree (see ROOT_TREE). */
static int clone_top(const char *source)
{
    char top[SPAWN_PATH_MAX];
    const char *slash = strrchr(source, '/');
    if (!slash || strcmp(slash + 1, ROOT_TREE) != 0)
        return -EINVAL;
    (void)snprintf(top, sizeof(top), "%.*s", (int)(slash - source), source);
    return sys_tree_clone(AT_FDCWD, top);
}

/* Attaches the tree itself. Its device nodes, which only root can have made, work even if the
 * file system of the state directory is mounted with nodev. */
static int add_tree(int stage_fd, const struct spawn_entry *e, int *ret_fd)
{
    bool devices = e->flags & ENTRY_HAS_DEVICES;
    bool in_memory = e->flags & ENTRY_IN_MEMORY;
    cleanup_close int fd = in_memory ? setup_copy_tree(e->source) : clone_top(e->source);
    int r = fd < 0 ? fd
                   : sys_mount_attrs(fd, ATTR_RDONLY | ATTR_NOSUID | (devices ? 0 : ATTR_NODEV),
                         devices ? ATTR_NODEV : 0, false);
    if (r == 0)
        r = sys_mount_attach(fd, stage_fd, "r");
    if (r < 0)
        return r;
    *ret_fd =
        openat(fd, in_memory ? "." : ROOT_TREE, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return *ret_fd < 0 ? -errno : 0;
}

static int add_entry(int stage_fd, int root_fd, const struct spawn_entry *e)
{
    const char *path = e->path + 1;
    struct stat st;
    int r;
    switch (e->kind) {
    case ENTRY_BIND:
        r = bind(root_fd, AT_FDCWD, e->source, path, READ_ONLY);
        return r == -ENOENT && e->flags & ENTRY_OPTIONAL ? 0 : r;
    case ENTRY_DEVICE:
        if (stat(e->source, &st) < 0)
            return -errno;
        if (!S_ISCHR(st.st_mode) || major(st.st_rdev) != 1) /* memory devices: null, zero... */
            return -ENXIO;
        return bind(
            root_fd, AT_FDCWD, e->source, path, ATTR_RDONLY | ATTR_NOSUID | ATTR_NOEXEC);
    case ENTRY_MASK:
        return bind(root_fd, stage_fd, EMPTY, path, READ_ONLY | ATTR_NOEXEC);
    case ENTRY_EXEC: /* the spawner keeps the path */
        return 0;
    default:
        return -EINVAL;
    }
}

static bool is_well_formed(const struct spawn_entry *e, uint32_t index)
{
    if (!memchr(e->path, 0, sizeof(e->path)) || !memchr(e->source, 0, sizeof(e->source)))
        return false;
    return index == 0 ? e->kind == ENTRY_TREE : e->path[0] == '/' && e->path[1];
}

static int fill_root(
    int stage_fd, const struct spawn_entry *entries, uint32_t count, const char **ret_detail)
{
    cleanup_close int root = -1;
    int r = count ? 0 : -EINVAL;
    for (uint32_t i = 0; r == 0 && i < count; i++) {
        const struct spawn_entry *e = &entries[i];
        if (!is_well_formed(e, i))
            return -EINVAL;
        *ret_detail = e->source[0] ? e->source : e->path;
        r = i == 0 ? add_tree(stage_fd, e, &root) : add_entry(stage_fd, root, e);
    }
    return r;
}

static int make_empty(int stage_fd, const char *path)
{
    cleanup_close int fd =
        openat(stage_fd, path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444);
    return fd < 0 ? -errno : 0;
}

/* Makes the mount point for a directory or file of the operator on the stage, our own tmpfs. */
static int make_place(int stage_fd, const char *source, const char *path)
{
    struct stat st;
    if (stat(source, &st) < 0)
        return -errno;
    if (S_ISDIR(st.st_mode))
        return mkdirat(stage_fd, path, 0755) < 0 ? -errno : 0;
    return make_empty(stage_fd, path);
}

static int add_sources(int stage_fd, const char **ret_detail)
{
    for (uint32_t i = 0; i < source_count; i++) {
        char path[16];
        (void)snprintf(path, sizeof(path), "m/%u", i);
        *ret_detail = sources[i].path;
        bool is_writable =
            sources[i].writable == SOURCE_WRITABLE || sources[i].writable == SOURCE_TRY;
        unsigned attrs = is_writable ? ATTR_NOSUID | ATTR_NODEV : READ_ONLY;
        int r = make_place(stage_fd, sources[i].path, path);
        if (r < 0 || (r = bind(stage_fd, AT_FDCWD, sources[i].path, path, attrs)) < 0)
            return r;
    }
    return 0;
}

/* Makes the stage the root of this namespace. */
static int enter_stage(int stage_fd)
{
    if (fchdir(stage_fd) < 0)
        return -errno;
    int r = sys_pivot_root(".", "host");
    return r < 0 ? r : chdir("/") < 0 ? -errno : 0;
}

int setup_root(
    const struct spawn_entry *entries, uint32_t count, const char **ret_detail, int *ret_ns)
{
    static const char *const dirs[] = {"r", "m", "new", "host", "proc"};
    *ret_detail = "mount namespace";
    int r = 0;
    if (!is_fresh && setns(host_ns, CLONE_NEWNS) < 0)
        return -errno;
    if (!is_fresh && (r = leave_host()) < 0)
        return r;
    is_fresh = false;
    *ret_detail = "/proc";
    cleanup_close int proc = sys_tree_clone(AT_FDCWD, "/proc");
    if (proc < 0)
        return proc;
    cleanup_close int stage = open_stage();
    if (stage < 0)
        return stage;
    for (size_t i = 0; i < sizeof(dirs) / sizeof(dirs[0]); i++) {
        if (mkdirat(stage, dirs[i], 0755) < 0)
            return -errno;
    }
    if ((r = sys_mount_attach(proc, stage, "proc")) < 0 || (r = make_empty(stage, EMPTY)) < 0)
        return r;
    *ret_detail = "/";
    if ((r = fill_root(stage, entries, count, ret_detail)) < 0 ||
        (r = add_sources(stage, ret_detail)) < 0)
        return r;
    *ret_detail = "/";
    if ((r = enter_stage(stage)) < 0)
        return r;
    *ret_ns = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
    return *ret_ns < 0 ? -errno : 0;
}
