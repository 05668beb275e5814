/* SPDX-License-Identifier: Apache-2.0 */

/* See tree.h. Everything here happens before the seal, with paths from the runtime table. Targets
 * are made inside our own tmpfs and addressed from its descriptor; openat2 refuses to leave it or
 * to follow a link on the way. */

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

#define READ_ONLY (MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV)

static const struct {
    const char *path;
    unsigned major, minor;
} devices[] = {
    {"dev/null", 1, 3}, {"dev/zero", 1, 5}, {"dev/full", 1, 7}, {"dev/random", 1, 8},
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

int tree_isolate(void)
{
    if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        return -errno;
    return 0;
}

int tree_enter(int ns_fd)
{
    return setns(ns_fd, CLONE_NEWNS) < 0 ? -errno : 0;
}

static int set_number(int fs_fd, const char *key, uint64_t value)
{
    char text[24];
    (void)snprintf(text, sizeof(text), "%llu", (unsigned long long)value);
    return fsconfig(fs_fd, FSCONFIG_SET_STRING, key, text, 0) < 0 ? -errno : 0;
}

int tree_tmpfs(uint64_t bytes, uint64_t inodes, const char *mode, int owner, unsigned attrs)
{
    cleanup_close int fs = fsopen("tmpfs", FSOPEN_CLOEXEC);
    if (fs < 0)
        return -errno;
    int r = 0;
    if (bytes)
        r = set_number(fs, "size", bytes);
    if (r == 0 && inodes)
        r = set_number(fs, "nr_inodes", inodes);
    if (r == 0 && owner >= 0 && (r = set_number(fs, "uid", (uint64_t)owner)) == 0)
        r = set_number(fs, "gid", (uint64_t)owner);
    if (r < 0)
        return r;
    if (fsconfig(fs, FSCONFIG_SET_STRING, "mode", mode, 0) < 0 ||
        fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
        return -errno;
    int mnt = fsmount(fs, FSMOUNT_CLOEXEC, attrs);
    return mnt < 0 ? -errno : mnt;
}

static int attach(int mnt_fd, int dir_fd, const char *path)
{
    return move_mount(mnt_fd, "", dir_fd, path, MOVE_MOUNT_F_EMPTY_PATH) < 0 ? -errno : 0;
}

/* Attaches a fresh tmpfs somewhere in our private namespace to build on. The directory it covers
 * only has to exist. */
static int open_stage(void)
{
    static const char *const places[] = {"/tmp", "/mnt", "/run", "/var"};
    cleanup_close int stage =
        tree_tmpfs(65536, 64, "0755", -1, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
    if (stage < 0)
        return stage;
    int r = -ENOENT;
    for (size_t i = 0; r < 0 && i < sizeof(places) / sizeof(places[0]); i++)
        r = attach(stage, AT_FDCWD, places[i]);
    return r < 0 ? r : take_fd(&stage);
}

static int open_in_tree(int root_fd, const char *path, int flags, mode_t mode)
{
    struct open_how how = {.flags = (uint64_t)(unsigned)flags | O_CLOEXEC,
        .mode = mode,
        .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS};
    return sys_result(syscall(SYS_openat2, root_fd, path, &how, sizeof(how)));
}

/* Makes the directories above the last component of a relative path. */
static int make_parents(int root_fd, const char *path)
{
    char part[SPAWN_PATH_MAX];
    for (const char *slash = strchr(path, '/'); slash; slash = strchr(slash + 1, '/')) {
        (void)snprintf(part, sizeof(part), "%.*s", (int)(slash - path), path);
        if (mkdirat(root_fd, part, 0755) < 0 && errno != EEXIST && errno != EROFS)
            return -errno;
    }
    return 0;
}

static int bind(int root_fd, const char *source, const char *path, unsigned attrs)
{
    cleanup_close int from =
        open_tree(AT_FDCWD, source, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE);
    if (from < 0)
        return -errno;
    struct mount_attr attr = {.attr_set = attrs};
    if (mount_setattr(from, "", AT_EMPTY_PATH | AT_RECURSIVE, &attr, sizeof(attr)) < 0)
        return -errno;
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
    if (target < 0)
        return target;
    if (move_mount(from, "", target, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) < 0)
        return -errno;
    return 0;
}

static int add_file(int root_fd, const char *path, const char *text)
{
    cleanup_close int fd =
        open_in_tree(root_fd, path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0444);
    return fd < 0 ? fd : fs_write_all(fd, text, strlen(text));
}

static int add_entry(struct tree *tree, int root_fd, const struct spawn_entry *e)
{
    if (!memchr(e->path, 0, sizeof(e->path)) || !memchr(e->source, 0, sizeof(e->source)) ||
        e->path[0] != '/' || !e->path[1])
        return -EINVAL;
    const char *path = e->path + 1;
    int r = e->kind == ENTRY_EXEC ? 0 : make_parents(root_fd, path);
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

/* Device nodes can only be bound in a user namespace. Each is checked by its number first. */
static int add_devices(int root_fd, const char **ret_detail)
{
    for (size_t i = 0; i < sizeof(devices) / sizeof(devices[0]); i++) {
        char source[32];
        struct stat st;
        (void)snprintf(source, sizeof(source), "/%s", devices[i].path);
        *ret_detail = devices[i].path;
        if (stat(source, &st) < 0)
            return -errno;
        if (!S_ISCHR(st.st_mode) || st.st_rdev != makedev(devices[i].major, devices[i].minor))
            return -ENXIO;
        int r = bind(root_fd, source, devices[i].path,
            MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC);
        if (r < 0)
            return r;
    }
    return 0;
}

static int fill_root(struct tree *tree, int root_fd, const struct spawn_entry *entries,
    uint32_t count, const char **ret_detail)
{
    size_t fixed = sizeof(fixed_entries) / sizeof(fixed_entries[0]);
    for (size_t i = 0; i < fixed + count; i++) {
        const struct spawn_entry *e = i < fixed ? &fixed_entries[i] : &entries[i - fixed];
        *ret_detail = e->kind == ENTRY_BIND ? e->source : e->path;
        int r = add_entry(tree, root_fd, e);
        if (r < 0)
            return r;
    }
    int r = add_devices(root_fd, ret_detail);
    if (r < 0)
        return r;
    *ret_detail = "/";
    struct mount_attr attr = {.attr_set = READ_ONLY};
    if (mount_setattr(root_fd, "", AT_EMPTY_PATH, &attr, sizeof(attr)) < 0)
        return -errno;
    return 0;
}

static int add_sources(
    int stage_fd, const struct tree_source *sources, uint32_t count, const char **ret_detail)
{
    for (uint32_t i = 0; i < count; i++) {
        char path[16];
        (void)snprintf(path, sizeof(path), "m/%u", i);
        *ret_detail = sources[i].path;
        unsigned attrs = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV;
        int r = bind(stage_fd, sources[i].path, path,
            sources[i].writable ? attrs : attrs | MOUNT_ATTR_RDONLY);
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
    *ret_detail = "tmpfs";
    if (unshare(CLONE_NEWNS) < 0)
        return -errno;
    cleanup_close int stage = open_stage();
    if (stage < 0)
        return stage;
    for (size_t i = 0; i < sizeof(dirs) / sizeof(dirs[0]); i++) {
        if (mkdirat(stage, dirs[i], 0755) < 0)
            return -errno;
    }
    *ret_detail = "/proc";
    int r = bind(stage, "/proc", "proc",
        MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);
    if (r < 0)
        return r;
    *ret_detail = "/";
    cleanup_close int root = tree_tmpfs(1 << 20, 2048, "0755", -1, MOUNT_ATTR_NOSUID);
    if (root < 0)
        return root;
    if ((r = attach(root, stage, "r")) < 0 ||
        (r = fill_root(tree, root, entries, count, ret_detail)) < 0 ||
        (r = add_sources(stage, sources, source_count, ret_detail)) < 0)
        return r;
    *ret_detail = "/";
    if ((r = enter_stage(stage)) < 0)
        return r;
    tree->ns_fd = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
    return tree->ns_fd < 0 ? -errno : 0;
}
