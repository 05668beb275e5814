/* SPDX-License-Identifier: Apache-2.0 */

/* See whiteout.h. */

#include "layer/whiteout.h"

#include "base/cleanup.h"
#include "base/os/fs.h"

#include <fcntl.h>
#include <sys/sysmacros.h>
#include <sys/utsname.h>
#include <sys/xattr.h>

#define OPAQUE_ATTRIBUTE "user.overlay.opaque"
#define WHITEOUT_ATTRIBUTE "user.overlay.whiteout"

enum whiteout_dir whiteout_dir(int dir_fd)
{
    char value[2];
    if (fgetxattr(dir_fd, OPAQUE_ATTRIBUTE, value, sizeof(value)) != 1)
        return WHITEOUT_DIR_PLAIN;
    return value[0] == 'y'   ? WHITEOUT_DIR_OPAQUE
           : value[0] == 'x' ? WHITEOUT_DIR_MIXED
                             : WHITEOUT_DIR_PLAIN;
}

bool whiteout_is(int dir_fd, enum whiteout_dir kind, const char *name, const struct stat *st)
{
    if (S_ISCHR(st->st_mode))
        return st->st_rdev == makedev(0, 0);
    if (kind != WHITEOUT_DIR_MIXED || !S_ISREG(st->st_mode) || st->st_size > 0)
        return false;
    cleanup_close int fd = fs_open_beneath(dir_fd, name, O_RDONLY, 0);
    return fd >= 0 && fgetxattr(fd, WHITEOUT_ATTRIBUTE, NULL, 0) >= 0;
}

/* Deletions by attribute came with Linux 6.7. */
static bool is_understood(void)
{
    struct utsname name;
    char *rest;
    if (uname(&name) < 0)
        return false;
    unsigned long major = strtoul(name.release, &rest, 10);
    return major > 6 || (major == 6 && *rest == '.' && strtoul(rest + 1, NULL, 10) >= 7);
}

int whiteout_make(int dir_fd, const char *name)
{
    enum whiteout_dir kind = whiteout_dir(dir_fd);
    if (kind == WHITEOUT_DIR_OPAQUE)
        return 0;
    if (!is_understood())
        return -EOPNOTSUPP;
    cleanup_close int fd = fs_open_beneath(dir_fd, name, O_WRONLY | O_CREAT | O_EXCL, 0644);
    if (fd < 0)
        return fd;
    if (fsetxattr(fd, WHITEOUT_ATTRIBUTE, "y", 1, 0) < 0 ||
        (kind == WHITEOUT_DIR_PLAIN && fsetxattr(dir_fd, OPAQUE_ATTRIBUTE, "x", 1, 0) < 0))
        return -errno;
    return 0;
}

int whiteout_hide(int dir_fd)
{
    enum whiteout_dir kind = whiteout_dir(dir_fd);
    int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    cleanup_closedir DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *e;
    if (!dir)
        return -errno;
    while (kind == WHITEOUT_DIR_MIXED && (errno = 0, e = readdir(dir))) {
        struct stat st;
        if (fstatat(dir_fd, e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
            return -errno;
        if (whiteout_is(dir_fd, kind, e->d_name, &st) && unlinkat(dir_fd, e->d_name, 0) < 0)
            return -errno;
    }
    return fsetxattr(dir_fd, OPAQUE_ATTRIBUTE, "y", 1, 0) < 0 ? -errno : 0;
}
