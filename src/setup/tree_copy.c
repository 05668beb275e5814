/* SPDX-License-Identifier: Apache-2.0 */

/* Copies a root tree into memory, for boxes whose mounts must not show where the tree lies and
 * whose root must be the top of a mount (ENTRY_IN_MEMORY). The tree holds many names of one
 * program (python, python3, python3.11), so names of one file in one directory stay names of
 * one file. */

#include "setup/setup.h"

#include "base/cleanup.h"
#include "base/os/copy_tree.h"
#include "base/os/sys.h"
#include "box/mount_fs.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The tree of Python has 20 MB and 300 names. */
enum { COPY_BYTES = 128 << 20, COPY_INODES = 8192, COPIED_MAX = 1024 };

/* Files that have more than one name, with the first copy of each. */
static struct copied {
    dev_t dev;
    ino_t ino;
    ino_t dir; /* inode of the directory of the copy */
    char name[64];
} copied[COPIED_MAX];
static unsigned copied_count;

static int link_again(const struct stat *st, int to_dir, const char *name)
{
    struct stat dir;
    if (fstat(to_dir, &dir) < 0)
        return -errno;
    for (unsigned i = 0; i < copied_count; i++) {
        const struct copied *c = &copied[i];
        if (c->ino == st->st_ino && c->dev == st->st_dev && c->dir == dir.st_ino)
            return linkat(to_dir, c->name, to_dir, name, 0) < 0 ? -errno : 1;
    }
    if (copied_count < COPIED_MAX && strlen(name) < sizeof(copied[0].name)) {
        struct copied *c = &copied[copied_count++];
        *c = (struct copied){.dev = st->st_dev, .ino = st->st_ino, .dir = dir.st_ino};
        (void)snprintf(c->name, sizeof(c->name), "%s", name);
    }
    return 0;
}

static int copy_special_file(const struct stat *st, int to_dir, const char *name)
{
    if (S_ISREG(st->st_mode))
        return st->st_nlink > 1 ? link_again(st, to_dir, name) : 0;
    if (!S_ISCHR(st->st_mode))
        return 0;
    if (mknodat(to_dir, name, st->st_mode, st->st_rdev) < 0)
        return -errno;
    return fchmodat(to_dir, name, st->st_mode & 0777, 0) < 0 ? -errno : 1;
}

int setup_copy_tree(const char *source)
{
    copied_count = 0;
    cleanup_close int from = open(source, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (from < 0)
        return -errno;
    cleanup_close int copy =
        mount_fs_tmpfs(COPY_BYTES, COPY_INODES, "0755", -1, ATTR_NOSUID | ATTR_NODEV);
    if (copy < 0)
        return copy;
    cleanup_close int to = openat(copy, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (to < 0)
        return -errno;
    int r = copy_tree(from, to, copy_special_file);
    return r < 0 ? r : take_fd(&copy);
}
