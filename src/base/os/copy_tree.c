/* SPDX-License-Identifier: Apache-2.0 */

/* See copy_tree.h. Recursive, with one open directory per level in each tree. */

#include "base/os/copy_tree.h"

#include "base/cleanup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

/* DEPTH_MAX: levels of directories; each has descriptors open in both trees. */
enum { DEPTH_MAX = 200, MODE_BITS = 07777 };

static int keep_mode(int fd, const struct stat *st)
{
    const struct timespec times[2] = {st->st_atim, st->st_mtim};
    return fchmod(fd, st->st_mode & MODE_BITS) < 0 || futimens(fd, times) < 0 ? -errno : 0;
}

/* Copies one range without holes. */
static int copy_piece(int from, int to, off_t at, off_t end)
{
    if (lseek(to, at, SEEK_SET) < 0)
        return -errno;
    while (at < end) {
        ssize_t n = sendfile(to, from, &at, (size_t)(end - at));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : -EIO;
    }
    return 0;
}

static int copy_bytes(int from, int to, off_t size)
{
    off_t at = 0;
    int r = 0;
    while (r == 0 && at < size) {
        off_t data = lseek(from, at, SEEK_DATA);
        if (data < 0 && errno == ENXIO)
            break;
        off_t hole = data < 0 ? -1 : lseek(from, data, SEEK_HOLE);
        if (data < 0 || hole < 0)
            return -errno;
        r = copy_piece(from, to, data, hole < size ? hole : size);
        at = hole;
    }
    return r == 0 && ftruncate(to, size) < 0 ? -errno : r;
}

static int copy_file(int from_dir, int to_dir, const char *name)
{
    struct stat st = {0};
    cleanup_close int from =
        openat(from_dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (from < 0 || fstat(from, &st) < 0)
        return -errno;
    if (!S_ISREG(st.st_mode))
        return -EINVAL;
    cleanup_close int to =
        openat(to_dir, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (to < 0)
        return -errno;
    int r = copy_bytes(from, to, st.st_size);
    return r < 0 ? r : keep_mode(to, &st);
}

static int copy_link(int from_dir, int to_dir, const char *name)
{
    char target[PATH_MAX];
    ssize_t n = readlinkat(from_dir, name, target, sizeof(target) - 1);
    if (n < 0)
        return -errno;
    target[n] = '\0';
    return symlinkat(target, to_dir, name) < 0 ? -errno : 0;
}

static int copy_below(int from_fd, int to_fd, copy_special *special, int depth);

static int copy_directory(
    int from_dir, int to_dir, const char *name, copy_special *special, int depth)
{
    if (depth == DEPTH_MAX)
        return -ELOOP;
    if (mkdirat(to_dir, name, 0700) < 0)
        return -errno;
    const int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    cleanup_close int from = openat(from_dir, name, flags);
    cleanup_close int to = from < 0 ? -1 : openat(to_dir, name, flags);
    if (to < 0)
        return -errno;
    return copy_below(from, to, special, depth + 1);
}

static int copy_entry(
    int from_dir, int to_dir, const char *name, copy_special *special, int depth)
{
    struct stat st = {0};
    if (fstatat(from_dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return -errno;
    int r = special ? special(&st, to_dir, name) : 0;
    if (r != 0)
        return r < 0 ? r : 0;
    switch (st.st_mode & S_IFMT) {
    case S_IFREG:
        return copy_file(from_dir, to_dir, name);
    case S_IFDIR:
        return copy_directory(from_dir, to_dir, name, special, depth);
    case S_IFLNK:
        return copy_link(from_dir, to_dir, name);
    case S_IFIFO:
        return mkfifoat(to_dir, name, st.st_mode & 0777) < 0 ? -errno : 0;
    default:
        return 0;
    }
}

static int copy_below(int from_fd, int to_fd, copy_special *special, int depth)
{
    struct stat st = {0};
    int again = openat(from_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    cleanup_closedir DIR *dir = again < 0 ? NULL : fdopendir(again);
    if (!dir) {
        int error = -errno;
        close_fd(&again);
        return error;
    }
    int r = 0;
    while (r == 0) {
        errno = 0;
        const struct dirent *entry = readdir(dir);
        if (!entry) {
            r = -errno;
            break;
        }
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            r = copy_entry(from_fd, to_fd, entry->d_name, special, depth);
    }
    if (r == 0 && fstat(from_fd, &st) < 0)
        r = -errno;
    return r < 0 ? r : keep_mode(to_fd, &st);
}

int copy_tree(int from_fd, int to_fd, copy_special *special)
{
    return copy_below(from_fd, to_fd, special, 0);
}
