/* SPDX-License-Identifier: Apache-2.0 */

/* See tree.h. Everything here happens before the seal, with paths from the runtime table.
 * Targets are made inside our own tmpfs and addressed from its descriptor; openat2 refuses to
 * leave it or to follow a link on the way. */

#include "spawn/tree.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/str.h"
#include "spawn/sys.h"

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

static const struct {
    const char *path;
    unsigned major, minor;
} devices[] = {
    {"dev/null", 1, 3},
    {"dev/zero", 1, 5},
    {"dev/full", 1, 7},
    {"dev/random", 1, 8},
    {"dev/urandom", 1, 9},
};

static const struct spawn_entry fixed_entries[] = {
    {.kind = ENTRY_DIR, .path = "/box"},
    {.kind = ENTRY_DIR, .path = "/tmp"},
    {.kind = ENTRY_DIR, .path = "/mnt"},
    {.kind = ENTRY_DIR, .path = "/proc"},
    {.kind = ENTRY_DIR, .path = "/dev/shm"},
    {.kind = ENTRY_LINK, .path = "/dev/fd", .source = "/proc/self/fd"},
    {.kind = ENTRY_LINK, .path = "/dev/stdin", .source = "/proc/self/fd/0"},
    {.kind = ENTRY_LINK, .path = "/dev/stdout", .source = "/proc/self/fd/1"},
    {.kind = ENTRY_LINK, .path = "/dev/stderr", .source = "/proc/self/fd/2"},
};

/* The host's namespace, to go back to for the next tree, and whether we are in a copy of it
 * that no tree has been built in yet. */
static int host_ns = -1;
static bool is_fresh;

static int leave_host(void)
{
    if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        return -errno;
    is_fresh = true;
    return 0;
}

int tree_open(bool rootless)
{
    /* Only root may come back to the host's namespace; others come back to a copy of theirs. */
    if (rootless && unshare(CLONE_NEWNS) < 0)
        return -errno;
    host_ns = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
    return host_ns < 0 ? -errno : leave_host();
}

int tree_enter(int ns_fd)
{
    return setns(ns_fd, CLONE_NEWNS) < 0 ? -errno : 0;
}

static int set_number(int fs_fd, const char *key, uint64_t value)
{
    char text[24];
    (void)snprintf(text, sizeof(text), "%llu", (unsigned long long)value);
    return sys_fs_set(fs_fd, key, text);
}

int tree_tmpfs(uint64_t bytes, uint64_t inodes, const char *mode, int owner, unsigned attrs)
{
    cleanup_close int fs = sys_fs_open("tmpfs");
    if (fs < 0)
        return fs;
    int r = 0;
    if (bytes)
        r = set_number(fs, "size", bytes);
    if (r == 0 && inodes)
        r = set_number(fs, "nr_inodes", inodes);
    if (r == 0 && owner >= 0 && (r = set_number(fs, "uid", (uint64_t)owner)) == 0)
        r = set_number(fs, "gid", (uint64_t)owner);
    if (r < 0 || (r = sys_fs_set(fs, "mode", mode)) < 0 || (r = sys_fs_create(fs)) < 0)
        return r;
    return sys_fs_mount(fs, attrs);
}

/* Attaches a fresh tmpfs to build on, in our private namespace. It has to cover some directory,
 * and the one that nothing is ever bound from is /proc, of which the caller has a copy. */
static int open_stage(void)
{
    cleanup_close int stage = tree_tmpfs(65536, 64, "0755", -1, ATTR_NOSUID | ATTR_NODEV);
    if (stage < 0)
        return stage;
    int r = sys_mount_attach(stage, AT_FDCWD, "/proc");
    return r < 0 ? r : take_fd(&stage);
}

static int open_in_tree(int root_fd, const char *path, int flags, mode_t mode)
{
    return sys_openat2(root_fd, path, flags, mode, RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS);
}

/* Makes the directories above the last component of a relative path. Entries come in groups, so
 * most of the time those of the entry before will do. */
static int make_parents(int root_fd, const char *path, const char *before)
{
    char part[SPAWN_PATH_MAX];
    for (const char *slash = strchr(path, '/'); slash; slash = strchr(slash + 1, '/')) {
        size_t len = (size_t)(slash - path);
        if (strncmp(path, before, len + 1) == 0)
            continue;
        (void)snprintf(part, sizeof(part), "%.*s", (int)len, path);
        if (mkdirat(root_fd, part, 0755) < 0 && errno != EEXIST && errno != EROFS)
            return -errno;
    }
    return 0;
}

static int bind(int root_fd, const char *source, const char *path, unsigned attrs)
{
    cleanup_close int from = sys_tree_clone(AT_FDCWD, source);
    if (from < 0)
        return from;
    int r = sys_mount_attrs(from, attrs, true);
    if (r < 0)
        return r;
    struct stat st;
    if (fstat(from, &st) < 0)
        return -errno;
    if (S_ISDIR(st.st_mode)) {
        if (mkdirat(root_fd, path, 0755) < 0 && errno != EEXIST && errno != EROFS)
            return -errno;
    } else {
        int made = openat(root_fd, path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444);
        if (made < 0 && errno != EEXIST && errno != EROFS)
            return -errno;
        close_fd(&made);
    }
    cleanup_close int target = open_in_tree(root_fd, path, O_PATH, 0);
    return target < 0 ? target : sys_mount_attach(from, target, "");
}

static int add_file(int root_fd, const char *path, const char *text)
{
    cleanup_close int fd =
        open_in_tree(root_fd, path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0444);
    return fd < 0 ? fd : fs_write_all(fd, text, strlen(text));
}

static int add_entry(struct tree *tree, int root_fd, const struct spawn_entry *e,
    const struct spawn_entry *before)
{
    if (!memchr(e->path, 0, sizeof(e->path)) || !memchr(e->source, 0, sizeof(e->source)) ||
        e->path[0] != '/' || !e->path[1])
        return -EINVAL;
    const char *path = e->path + 1;
    int r = 0;
    if (e->kind != ENTRY_EXEC)
        r = make_parents(root_fd, path, before ? before->path + 1 : "");
    if (r < 0)
        return r;
    switch (e->kind) {
    case ENTRY_DIR:
        return mkdirat(root_fd, path, 0755) < 0 && errno != EEXIST ? -errno : 0;
    case ENTRY_LINK:
        return symlinkat(e->source, root_fd, path) < 0 ? -errno : 0;
    case ENTRY_BIND:
        r = bind(root_fd, e->source, path, READ_ONLY);
        return r == -ENOENT && e->optional ? 0 : r;
    case ENTRY_FILE:
        return add_file(root_fd, path, e->source);
    case ENTRY_EXEC:
        if (tree->exec_count == SPAWN_MAX_EXECS)
            return -E2BIG;
        (void)snprintf(tree->execs[tree->exec_count++], SPAWN_PATH_MAX, "%s", e->path);
        return 0;
    default:
        return -EINVAL;
    }
}

/* Root makes the device nodes in the tree itself: five mounts less to copy for every box. In a
 * user namespace, or without CAP_MKNOD, they can only be bound, each checked by its number
 * first. */
static int add_device(int root_fd, const char *path, dev_t number)
{
    char source[32];
    struct stat st;
    if (mknodat(root_fd, path, S_IFCHR | 0666, number) == 0)
        return fchmodat(root_fd, path, 0666, 0) < 0 ? -errno : 0;
    (void)snprintf(source, sizeof(source), "/%s", path);
    if (stat(source, &st) < 0)
        return -errno;
    if (!S_ISCHR(st.st_mode) || st.st_rdev != number)
        return -ENXIO;
    return bind(root_fd, source, path, ATTR_RDONLY | ATTR_NOSUID | ATTR_NOEXEC);
}

static int add_devices(int root_fd, const char **ret_detail)
{
    int r = 0;
    for (size_t i = 0; r == 0 && i < sizeof(devices) / sizeof(devices[0]); i++) {
        *ret_detail = devices[i].path;
        r = add_device(root_fd, devices[i].path, makedev(devices[i].major, devices[i].minor));
    }
    return r;
}

static int fill_root(struct tree *tree, int root_fd, const struct spawn_entry *entries,
    uint32_t count, const char **ret_detail)
{
    size_t fixed = sizeof(fixed_entries) / sizeof(fixed_entries[0]);
    const struct spawn_entry *before = NULL;
    for (size_t i = 0; i < fixed + count; i++) {
        const struct spawn_entry *e = i < fixed ? &fixed_entries[i] : &entries[i - fixed];
        *ret_detail = e->kind == ENTRY_BIND ? e->source : e->path;
        int r = add_entry(tree, root_fd, e, before);
        if (r < 0)
            return r;
        before = e->kind == ENTRY_EXEC ? before : e;
    }
    int r = add_devices(root_fd, ret_detail);
    if (r < 0)
        return r;
    *ret_detail = "/";
    /* Not nodev: its own five nodes are the only ones, and nobody in a box can make another. */
    return sys_mount_attrs(root_fd, ATTR_RDONLY | ATTR_NOSUID, false);
}

static int add_sources(
    int stage_fd, const struct tree_source *sources, uint32_t count, const char **ret_detail)
{
    for (uint32_t i = 0; i < count; i++) {
        char path[16];
        (void)snprintf(path, sizeof(path), "m/%u", i);
        *ret_detail = sources[i].path;
        unsigned attrs = ATTR_NOSUID | ATTR_NODEV;
        int r = bind(
            stage_fd, sources[i].path, path, sources[i].writable ? attrs : attrs | ATTR_RDONLY);
        if (r < 0)
            return r;
    }
    return 0;
}

/* Makes the stage the root of this namespace and lets go of the host's tree. */
static int enter_stage(int stage_fd)
{
    if (fchdir(stage_fd) < 0)
        return -errno;
    int r = sys_pivot_root(".", "new");
    if (r < 0)
        return r;
    if (umount2("new", MNT_DETACH) < 0 || chdir("/") < 0)
        return -errno;
    return 0;
}

int tree_build(struct tree *tree, const struct spawn_entry *entries, uint32_t count,
    const struct tree_source *sources, uint32_t source_count, const char **ret_detail)
{
    static const char *const dirs[] = {"r", "m", "new", "proc"};
    tree->exec_count = 0;
    *ret_detail = "/proc";
    int r = 0;
    if (!is_fresh && ((r = tree_enter(host_ns)) < 0 || (r = leave_host()) < 0))
        return r;
    is_fresh = false;
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
    if ((r = sys_mount_attach(proc, stage, "proc")) < 0)
        return r;
    *ret_detail = "/";
    cleanup_close int root = tree_tmpfs(1 << 20, 2048, "0755", -1, ATTR_NOSUID);
    if (root < 0)
        return root;
    if ((r = sys_mount_attach(root, stage, "r")) < 0 ||
        (r = fill_root(tree, root, entries, count, ret_detail)) < 0 ||
        (r = add_sources(stage, sources, source_count, ret_detail)) < 0)
        return r;
    *ret_detail = "/";
    if ((r = enter_stage(stage)) < 0)
        return r;
    tree->ns_fd = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
    return tree->ns_fd < 0 ? -errno : 0;
}
