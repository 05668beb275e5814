/* SPDX-License-Identifier: Apache-2.0 */

/* See rootfs_skeleton.h. The tree is made once per root and mounted for every box: a box costs
 * one mount instead of forty directories, links and files. */

#include "lang/rootfs_skeleton.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/os/fs.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

static const char *const fixed_dirs[] = {
    "/box", "/tmp", "/mnt", "/proc", "/dev/shm", "/dev/pts"};

static const struct {
    const char *path, *target;
} fixed_links[] = {
    {"/dev/fd", "/proc/self/fd"},
    {"/dev/ptmx", "pts/ptmx"}, /* /dev/pts is mounted in sessions only */
    {"/dev/stdin", "/proc/self/fd/0"},
    {"/dev/stdout", "/proc/self/fd/1"},
    {"/dev/stderr", "/proc/self/fd/2"},
};

static const struct {
    const char *path;
    unsigned major, minor;
} devices[] = {
    {"/dev/null", 1, 3}, {"/dev/zero", 1, 5}, {"/dev/full", 1, 7}, {"/dev/random", 1, 8},
    {"/dev/urandom", 1, 9},
    {"/dev/tty", 5, 0}, /* needs a controlling terminal, which only sessions have */
};

int root_entry_add(
    struct root_entries *entries, uint32_t kind, const char *path, const char *source)
{
    struct spawn_entry e = {.kind = kind};

    if (strlen(path) >= sizeof(e.path) || strlen(source) >= sizeof(e.source))
        return -ENAMETOOLONG;
    if (entries->count >= SPAWN_MAX_ENTRIES)
        return -E2BIG;
    memcpy(e.path, path, strlen(path));
    memcpy(e.source, source, strlen(source));
    entries->items = xreallocarray(entries->items, entries->count + 1, sizeof(*entries->items));
    entries->items[entries->count++] = e;
    return 0;
}

int root_tree_parents(int tree_fd, const char *path)
{
    const char *slash = strrchr(path, '/');
    cleanup_free char *parent = xstrndup(path, (size_t)(slash - path));

    return parent[0] ? fs_mkdirs_beneath(tree_fd, parent + 1, 0755) : 0;
}

int root_tree_dir(int tree_fd, const char *path)
{
    return fs_mkdirs_beneath(tree_fd, path + 1, 0755);
}

int root_tree_link(int tree_fd, const char *path, const char *target)
{
    int r = root_tree_parents(tree_fd, path);

    return r < 0 ? r : symlinkat(target, tree_fd, path + 1) < 0 ? -errno : 0;
}

int root_tree_file(int tree_fd, const char *path, const char *text)
{
    int r = root_tree_parents(tree_fd, path);

    if (r < 0)
        return r;
    cleanup_close int fd =
        fs_open_beneath(tree_fd, path + 1, O_WRONLY | O_CREAT | O_TRUNC, 0444);
    return fd < 0 ? fd : fs_write_all(fd, text, strlen(text));
}

/* The major number of /dev/null, /dev/zero and the like. */
enum { MEMORY_DEVICES = 1 };

/* Root makes the nodes, which saves every box one mount for each. In a user namespace, or
 * without CAP_MKNOD, the nodes of the host can only be bound. */
static int add_device(
    int tree_fd, struct root_entries *entries, const char *path, dev_t number, bool *ret_made)
{
    *ret_made = mknodat(tree_fd, path + 1, S_IFCHR | 0666, number) == 0;
    if (*ret_made)
        return fchmodat(tree_fd, path + 1, 0666, 0) < 0 ? -errno : 0;
    if (major(number) != MEMORY_DEVICES) /* /dev/tty is optional */
        return 0;
    int r = root_tree_file(tree_fd, path, "");
    return r < 0 ? r : root_entry_add(entries, ENTRY_DEVICE, path, path);
}

int root_tree_start(int tree_fd, struct root_entries *entries)
{
    int r = 0;

    for (size_t i = 0; r == 0 && i < sizeof(fixed_dirs) / sizeof(fixed_dirs[0]); i++)
        r = root_tree_dir(tree_fd, fixed_dirs[i]);
    for (size_t i = 0; r == 0 && i < sizeof(fixed_links) / sizeof(fixed_links[0]); i++)
        r = root_tree_link(tree_fd, fixed_links[i].path, fixed_links[i].target);
    for (size_t i = 0; r == 0 && i < sizeof(devices) / sizeof(devices[0]); i++) {
        bool made;
        r = add_device(tree_fd, entries, devices[i].path,
            makedev(devices[i].major, devices[i].minor), &made);
        if (r == 0 && made)
            entries->items[0].flags |= ENTRY_HAS_DEVICES;
    }
    return r;
}
