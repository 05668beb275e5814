/* SPDX-License-Identifier: Apache-2.0 */

/* See upon.h. Goes down both trees with one open directory per level and follows no link. A
 * program of the box that changes the tree meanwhile gains nothing: it could change the
 * result, too. */

#include "layer/upon.h"

#include "base/cleanup.h"
#include "base/os/fs.h"
#include "base/str.h"
#include "layer/tar.h"
#include "layer/whiteout.h"

#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>

/* A walk through two trees. The dev_t are from their top directories: a directory with another
 * dev_t is a mount. */
struct walk {
    dev_t first_dev, second_dev;
    struct err *err;
};

static int fail(const struct walk *w, const char *what, const char *name, int r)
{
    char shown[256];
    return err_set(
        w->err, err_code_of(-r), -r, "%s %s: %s", what, layer_show(name, shown), strerror(-r));
}

/* A directory of one of the trees, or -EXDEV for a mount. */
static int open_dir(int dir_fd, const char *name, dev_t dev)
{
    cleanup_close int fd =
        openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0)
        return -errno;
    return st.st_dev == dev ? take_fd(&fd) : -EXDEV;
}

static DIR *list(int dir_fd)
{
    int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 ? NULL : fdopendir(fd);
}

/* The next name in a directory except "." and "..", with its status; NULL at the end. */
static const char *next(DIR *dir, int dir_fd, struct stat *st)
{
    for (struct dirent *e; (e = readdir(dir));) {
        if (!str_eq(e->d_name, ".") && !str_eq(e->d_name, "..") &&
            fstatat(dir_fd, e->d_name, st, AT_SYMLINK_NOFOLLOW) == 0)
            return e->d_name;
    }
    return NULL;
}

static int read_link(int dir_fd, const char *name, char target[LAYER_PATH_MAX + 1])
{
    ssize_t n = readlinkat(dir_fd, name, target, LAYER_PATH_MAX + 1);
    if (n < 0 || n > LAYER_PATH_MAX)
        return n < 0 ? -errno : -ENAMETOOLONG;
    target[n] = '\0';
    return 0;
}

static int copy_link(int from_fd, int to_fd, const char *name)
{
    char target[LAYER_PATH_MAX + 1];
    int r = read_link(from_fd, name, target);
    return r < 0 ? r : symlinkat(target, to_fd, name) < 0 ? -errno : 0;
}

static int copy_file(int from_fd, int to_fd, const char *name, const struct stat *st)
{
    cleanup_close int from = openat(from_fd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (from < 0)
        return -errno;
    cleanup_close int to =
        openat(to_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
            st->st_mode & S_IXUSR ? 0755 : 0644);
    if (to < 0)
        return -errno;
    const struct timespec times[2] = {st->st_mtim, st->st_mtim};
    int r = fs_copy_fd(from, to);
    return r < 0 ? r : futimens(to, times) < 0 ? -errno : 0;
}

static int copy_dir(const struct walk *w, int from_fd, int to_fd, int depth);

static int copy_subdir(
    const struct walk *w, int from_fd, int to_fd, const char *name, int depth)
{
    if (depth >= LAYER_DEPTH_MAX)
        return fail(w, "cannot copy", name, -ELOOP);
    cleanup_close int from = open_dir(from_fd, name, w->first_dev);
    if (from == -EXDEV)
        return 0;
    if (mkdirat(to_fd, name, 0755) < 0 && errno != EEXIST)
        return fail(w, "cannot copy", name, -errno);
    cleanup_close int to = open_dir(to_fd, name, w->second_dev);
    if (to == -EXDEV)
        return 0;
    if (from < 0 || to < 0)
        return fail(w, "cannot copy", name, from < 0 ? from : to);
    return copy_dir(w, from, to, depth + 1);
}

static int copy_dir(const struct walk *w, int from_fd, int to_fd, int depth)
{
    cleanup_closedir DIR *dir = list(from_fd);
    struct stat st;
    int r = dir ? 0 : fail(w, "cannot read", ".", -errno);
    for (const char *name; r == 0 && (name = next(dir, from_fd, &st));) {
        if (S_ISDIR(st.st_mode)) {
            r = copy_subdir(w, from_fd, to_fd, name, depth);
            continue;
        }
        int done = S_ISREG(st.st_mode)   ? copy_file(from_fd, to_fd, name, &st)
                   : S_ISLNK(st.st_mode) ? copy_link(from_fd, to_fd, name)
                                         : 0;
        if (done < 0 && done != -EEXIST)
            r = fail(w, "cannot copy", name, done);
    }
    return r;
}

static bool same_bytes(int mine, int theirs)
{
    static uint8_t a[LAYER_PIECE];
    static uint8_t b[LAYER_PIECE];
    for (;;) {
        ssize_t n = read(mine, a, sizeof(a));
        if (n <= 0)
            return n == 0;
        for (ssize_t at = 0; at < n;) {
            ssize_t k = read(theirs, b + at, (size_t)(n - at));
            if (k <= 0)
                return false;
            at += k;
        }
        if (memcmp(a, b, (size_t)n) != 0)
            return false;
    }
}

/* Whether a file or a link is the same for a layer, which has no owners and few modes. */
static bool is_same(int top_fd, int base_fd, const char *name, const struct stat *mine,
    const struct stat *theirs)
{
    char targets[2][LAYER_PATH_MAX + 1];
    if ((mine->st_mode & S_IFMT) != (theirs->st_mode & S_IFMT))
        return false;
    if (S_ISLNK(mine->st_mode))
        return read_link(top_fd, name, targets[0]) == 0 &&
               read_link(base_fd, name, targets[1]) == 0 && str_eq(targets[0], targets[1]);
    if (!S_ISREG(mine->st_mode) || mine->st_size != theirs->st_size ||
        (mine->st_mode & S_IXUSR) != (theirs->st_mode & S_IXUSR))
        return false;
    cleanup_close int a = openat(top_fd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    cleanup_close int b = openat(base_fd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    return a >= 0 && b >= 0 && same_bytes(a, b);
}

/* Makes a deletion for each name that only the image has. */
static int delete_missing(const struct walk *w, int top_fd, int base_fd)
{
    cleanup_closedir DIR *dir = list(base_fd);
    struct stat st;
    struct stat mine;
    if (!dir)
        return fail(w, "cannot read", ".", -errno);
    for (const char *name; (name = next(dir, base_fd, &st));) {
        bool is_mount = S_ISDIR(st.st_mode) && st.st_dev != w->second_dev;
        if (is_mount || fstatat(top_fd, name, &mine, AT_SYMLINK_NOFOLLOW) == 0)
            continue;
        int r = whiteout_make(top_fd, name);
        if (r == -EOPNOTSUPP)
            return err_set(w->err, ERR_INTERNAL, EOPNOTSUPP,
                "a file of the base was removed, which needs Linux 6.7");
        if (r < 0)
            return fail(w, "cannot delete", name, r);
    }
    return 0;
}

/* The packer opens everything, as the owner. */
static int make_readable(int top_fd, const char *name, struct stat *st)
{
    mode_t need = S_ISDIR(st->st_mode) ? S_IRWXU : S_IRUSR | S_IWUSR;
    if (S_ISLNK(st->st_mode) || (st->st_mode & need) == need)
        return 0;
    return fchmodat(top_fd, name, (st->st_mode & 0777) | need, 0) < 0 ? -errno : 0;
}

static int subtract_dir(const struct walk *w, int top_fd, int base_fd, int depth);

/* base_fd: -1 when the image has no such directory. */
static int subtract_subdir(
    const struct walk *w, int top_fd, int base_fd, const char *name, int depth)
{
    if (depth >= LAYER_DEPTH_MAX)
        return fail(w, "cannot compare", name, -ELOOP);
    cleanup_close int mine = open_dir(top_fd, name, w->first_dev);
    if (mine < 0)
        return mine == -EXDEV ? 0 : fail(w, "cannot read", name, mine);
    cleanup_close int theirs = base_fd < 0 ? -1 : open_dir(base_fd, name, w->second_dev);
    int r = subtract_dir(w, mine, theirs, depth + 1);
    if (r == 0 && theirs >= 0 && unlinkat(top_fd, name, AT_REMOVEDIR) < 0 &&
        errno != ENOTEMPTY && errno != EBUSY)
        r = fail(w, "cannot remove", name, -errno);
    return r;
}

static int subtract_dir(const struct walk *w, int top_fd, int base_fd, int depth)
{
    cleanup_closedir DIR *dir = list(top_fd);
    struct stat mine;
    struct stat theirs;
    if (!dir)
        return fail(w, "cannot read", ".", -errno);
    int r = base_fd >= 0 ? delete_missing(w, top_fd, base_fd) : 0;
    enum whiteout_dir kind = r < 0 ? WHITEOUT_DIR_PLAIN : whiteout_dir(top_fd);
    for (const char *name; r == 0 && (name = next(dir, top_fd, &mine));) {
        if (whiteout_is(top_fd, kind, name, &mine) ||
            (S_ISDIR(mine.st_mode) && mine.st_dev != w->first_dev))
            continue;
        if ((r = make_readable(top_fd, name, &mine)) < 0)
            return fail(w, "cannot read", name, r);
        if (S_ISDIR(mine.st_mode))
            r = subtract_subdir(w, top_fd, base_fd, name, depth);
        else if (base_fd >= 0 && fstatat(base_fd, name, &theirs, AT_SYMLINK_NOFOLLOW) == 0 &&
                 is_same(top_fd, base_fd, name, &mine, &theirs) &&
                 unlinkat(top_fd, name, 0) < 0)
            r = fail(w, "cannot remove", name, -errno);
    }
    return r;
}

static int start(struct walk *w, int first_fd, int second_fd)
{
    struct stat first;
    struct stat second;
    if (fstat(first_fd, &first) < 0 || fstat(second_fd, &second) < 0)
        return fail(w, "cannot read", "/", -errno);
    w->first_dev = first.st_dev;
    w->second_dev = second.st_dev;
    return 0;
}

int upon_copy(int from_fd, int to_fd, struct err *err)
{
    struct walk w = {.err = err};
    int r = start(&w, from_fd, to_fd);
    return r < 0 ? r : copy_dir(&w, from_fd, to_fd, 0);
}

int upon_subtract(int top_fd, int base_fd, struct err *err)
{
    struct walk w = {.err = err};
    int r = start(&w, top_fd, base_fd);
    return r < 0 ? r : subtract_dir(&w, top_fd, base_fd, 0);
}
