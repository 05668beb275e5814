/* SPDX-License-Identifier: Apache-2.0 */

/* See fs.h. This file decides whose files Hermes obeys (fs_read_trusted) and changes the owner
 * of a tree (fs_give_tree). */

#include "base/os/fs.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "base/str.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Levels of directories. Each level holds descriptors open, so the depth has to be bounded. */
enum { GIVE_DEPTH = 32 };

/* Root, the user of this process, and the user who became root by sudo. */
static bool is_trusted(uid_t uid)
{
    const char *sudo = geteuid() == 0 ? getenv("SUDO_UID") : NULL;
    uint32_t invoker;
    return uid == 0 || uid == geteuid() ||
           (sudo && str_parse_u32(sudo, &invoker) == 0 && invoker == uid);
}

/* Group write permission is accepted when an ordinary user runs Hermes: the group is often the
 * user's own. */
static int check_trusted(const struct stat *st, const char *path, struct err *err)
{
    mode_t others = geteuid() == 0 ? S_IWGRP | S_IWOTH : S_IWOTH;
    if (!is_trusted(st->st_uid))
        return err_set(err, ERR_INVALID, EPERM,
            "%s belongs to user %u and is not believed; if it is yours, run: chown %u %s", path,
            st->st_uid, geteuid(), path);
    if (!S_ISLNK(st->st_mode) && (st->st_mode & others))
        return err_set(err, ERR_INVALID, EPERM,
            "%s can be written by other users and is not believed; if it is as it should be, "
            "run: chmod go-w %s",
            path, path);
    return 0;
}

int fs_read_trusted(const char *path, struct buf *b, struct err *err)
{
    struct stat link;
    struct stat st;
    cleanup_close int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &st) < 0 || lstat(path, &link) < 0)
        return err_set(err, ERR_INVALID, errno, "%s: %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return err_set(err, ERR_INVALID, EINVAL, "%s: it is not a file", path);
    int r = check_trusted(&st, path, err);
    if (r == 0 && S_ISLNK(link.st_mode)) /* the link's owner chose the file */
        r = check_trusted(&link, path, err);
    if (r < 0)
        return r;
    r = fs_read_to_end(fd, (size_t)st.st_size, b);
    return r < 0 ? err_set(err, ERR_INVALID, -r, "%s: %s", path, strerror(-r)) : 0;
}

static bool is_dots(const char *name)
{
    return str_eq(name, ".") || str_eq(name, "..");
}

static int give_entries(
    int dir_fd, const struct stat *top, uid_t from, uid_t uid, gid_t gid, unsigned depth);

/* Changes the owner of one entry that `from` owns, and of the entries below it; an entry of
 * another user stays. A directory changes after its entries, so that a walk that failed halfway
 * is repeated. */
static int give_one(int dir_fd, const char *name, const struct stat *top, uid_t from, uid_t uid,
    gid_t gid, unsigned depth)
{
    struct stat st;
    cleanup_close int fd = openat(dir_fd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0)
        return errno == ENOENT ? 0 : -errno;
    if (st.st_dev != top->st_dev || (st.st_uid != from && st.st_uid != uid))
        return 0;
    int r = 0;
    if (S_ISDIR(st.st_mode)) {
        cleanup_close int inside = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        r = inside < 0 ? -errno : give_entries(inside, top, from, uid, gid, depth + 1);
    }
    if (r == 0 && fchownat(fd, "", uid, gid, AT_EMPTY_PATH) < 0)
        r = -errno;
    return r;
}

static int give_entries(
    int dir_fd, const struct stat *top, uid_t from, uid_t uid, gid_t gid, unsigned depth)
{
    if (depth > GIVE_DEPTH)
        return -ELOOP;
    int copy = fcntl(dir_fd, F_DUPFD_CLOEXEC, 0);
    DIR *dir = copy < 0 ? NULL : fdopendir(copy);
    if (!dir) {
        int r = -errno;
        close_fd(&copy);
        return r;
    }
    int r = 0;
    for (struct dirent *entry; r == 0 && (errno = 0, entry = readdir(dir));) {
        if (!is_dots(entry->d_name))
            r = give_one(dir_fd, entry->d_name, top, from, uid, gid, depth);
    }
    if (r == 0 && errno)
        r = -errno;
    (void)closedir(dir);
    return r;
}

int fs_give_tree(int dir_fd, const char *name, uid_t uid, gid_t gid)
{
    struct stat top;
    cleanup_close int fd = openat(dir_fd, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &top) < 0)
        return -errno;
    return top.st_uid == uid ? 0 : give_one(dir_fd, name, &top, top.st_uid, uid, gid, 0);
}
