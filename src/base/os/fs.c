/* SPDX-License-Identifier: Apache-2.0 */

/* File access for the trusted side. Two rules shape this file. Names are resolved one
 * descriptor at a time, and links are never followed where a stranger may have placed one, so
 * swapping a name behind our back cannot lead outside. And trees that a stranger can make deep,
 * long or large are walked with a fixed number of descriptors and a fixed amount of memory. */

#include "base/os/fs.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/fs.h>
#include <linux/openat2.h>
#include <linux/stat.h>
#include <poll.h>
#include <stdbool.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/cleanup.h"

/* Identifies a mount. Before Linux 5.8 only the file system is known and id is 0. */
struct mount_id {
    dev_t dev;
    uint64_t id;
};

static int get_mount(int fd, struct mount_id *ret_mount, mode_t *ret_mode)
{
    struct statx st;

    if (syscall(SYS_statx, fd, "", AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT,
            STATX_TYPE | STATX_MNT_ID, &st) < 0)
        return -errno;
    *ret_mount = (struct mount_id){
        .dev = makedev(st.stx_dev_major, st.stx_dev_minor),
        .id = st.stx_mask & STATX_MNT_ID ? st.stx_mnt_id : 0,
    };
    if (ret_mode)
        *ret_mode = st.stx_mode;
    return 0;
}

static bool is_same_mount(const struct mount_id *a, const struct mount_id *b)
{
    return a->dev == b->dev && a->id == b->id;
}

static bool is_link_at(int dir_fd, const char *name)
{
    struct stat st;
    return fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(st.st_mode);
}

/* openat() of one component without following a link. Returns -ELOOP for a link where the
 * kernel would say "not a directory", as openat2 does. */
static int open_component(int dir_fd, const char *name, int flags, mode_t mode)
{
    int fd = openat(dir_fd, name, flags | O_NOFOLLOW | O_CLOEXEC, mode);
    int r = fd < 0 ? -errno : fd;

    if (r == -ENOTDIR && is_link_at(dir_fd, name))
        return -ELOOP;
    return r;
}

/* The last step of the walk. Opening must change nothing before it is clear that the file lies
 * on the same mount, so truncation waits. */
static int open_last(
    int dir_fd, const char *name, int flags, mode_t mode, const struct mount_id *mount)
{
    cleanup_close int fd = open_component(dir_fd, name, flags & ~O_TRUNC, mode);
    struct mount_id found = {0};
    mode_t type = 0;

    if (fd < 0)
        return fd;
    int r = get_mount(fd, &found, &type);
    if (r < 0)
        return r;
    if (!is_same_mount(&found, mount))
        return -EXDEV;
    /* With O_PATH, O_NOFOLLOW opens a link itself, which the caller may not have asked for. */
    if (S_ISLNK(type) && !(flags & O_NOFOLLOW))
        return -ELOOP;
    if ((flags & O_TRUNC) && !(flags & O_PATH) && S_ISREG(type) && ftruncate(fd, 0) < 0)
        return -errno;
    return take_fd(&fd);
}

/* Does what openat2 does, for kernels and system call filters that lack it. The caller has
 * checked that the path is relative, without ".." and without a trailing slash. */
static int open_by_walk(int dir_fd, const char *path, int flags, mode_t mode)
{
    cleanup_close int current = openat(dir_fd, ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    struct mount_id mount = {0};

    if (current < 0)
        return -errno;
    int r = get_mount(current, &mount, NULL);
    if (r < 0)
        return r;

    for (;;) {
        char name[NAME_MAX + 1];
        size_t len = strcspn(path, "/");

        if (len > NAME_MAX)
            return -ENAMETOOLONG;
        memcpy(name, path, len);
        name[len] = '\0';
        path += len;
        if (*path == '\0')
            return open_last(current, name, flags, mode, &mount);
        path += strspn(path, "/");

        struct mount_id found = {0};
        int next = open_component(current, name, O_PATH | O_DIRECTORY, 0);
        if (next < 0)
            return next;
        close_fd(&current);
        current = next;
        r = get_mount(current, &found, NULL);
        if (r < 0)
            return r;
        if (!is_same_mount(&found, &mount))
            return -EXDEV;
    }
}

static int check_beneath(const char *path)
{
    size_t len = strlen(path);

    if (len == 0)
        return -ENOENT;
    if (len >= PATH_MAX)
        return -ENAMETOOLONG;
    if (path[0] == '/')
        return -EXDEV;
    /* With a trailing slash O_NOFOLLOW does not hold for the last component. */
    if (path[len - 1] == '/')
        return -EINVAL;
    for (const char *p = path; *p;) {
        len = strcspn(p, "/");
        if (len == 2 && p[0] == '.' && p[1] == '.')
            return -EXDEV;
        p += len;
        p += strspn(p, "/");
    }
    return 0;
}

int fs_open_beneath(int dir_fd, const char *path, int flags, mode_t mode)
{
    int r = check_beneath(path);
    if (r < 0)
        return r;

    /* openat2 refuses what openat ignores: flags beside O_PATH, and a mode without O_CREAT. */
    flags |= O_CLOEXEC;
    if (flags & O_PATH)
        flags &= O_PATH | O_CLOEXEC | O_DIRECTORY | O_NOFOLLOW;
    else
        flags |= O_NOCTTY | O_NONBLOCK;
    bool can_create = (flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE;
    struct open_how how = {
        .flags = (uint64_t)(unsigned)flags,
        .mode = can_create ? mode & 07777 : 0,
        .resolve =
            RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV,
    };
    long fd = syscall(SYS_openat2, dir_fd, path, &how, sizeof(how));
    if (fd >= 0)
        return (int)fd;
    /* Older container engines answer EPERM to system calls that they do not know. */
    if (errno == ENOSYS || errno == EPERM)
        return open_by_walk(dir_fd, path, flags, (mode_t)how.mode);
    return -errno;
}

/* Reads to the end of the file. To find out whether there is one byte too many, that byte is
 * read but not stored. The first read asks for the file's size; files of /proc report 0. */
int fs_read_to_end(int fd, size_t size, struct buf *b)
{
    for (size_t want = size ? size + 1 : SSIZE_MAX;;) {
        ssize_t n = buf_read_fd(b, fd, want);
        if (n == -EMSGSIZE) {
            char extra;
            do {
                n = read(fd, &extra, 1);
            } while (n < 0 && errno == EINTR);
            if (n < 0)
                return -errno;
            return n > 0 ? -EMSGSIZE : 0;
        }
        if (n <= 0)
            return (int)n;
        want = (size_t)n < want ? want - (size_t)n : SSIZE_MAX;
    }
}

int fs_read_file(int dir_fd, const char *path, struct buf *b)
{
    /* O_NONBLOCK: opening a fifo without a writer must not hang before the fifo is refused. */
    cleanup_close int fd = openat(dir_fd, path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    struct stat st;
    size_t before = b->len;

    if (fd < 0 || fstat(fd, &st) < 0)
        return -errno;
    if (S_ISDIR(st.st_mode))
        return -EISDIR;
    if (!S_ISREG(st.st_mode))
        return -EINVAL;
    if (st.st_size > 0 && (uint64_t)st.st_size > b->max - b->len)
        return -EMSGSIZE;

    int r = fs_read_to_end(fd, (size_t)st.st_size, b);
    if (r < 0) {
        b->len = before;
        if (b->data)
            b->data[before] = '\0';
    }
    return r;
}

int fs_mkdirs(int dir_fd, const char *path, mode_t mode)
{
    char prefix[PATH_MAX];
    size_t len = strlen(path);

    if (len == 0)
        return -ENOENT;
    if (len >= sizeof(prefix))
        return -ENAMETOOLONG;
    memcpy(prefix, path, len + 1);
    for (size_t end = strspn(path, "/"); end < len; end += strspn(path + end, "/")) {
        struct stat st;

        end += strcspn(path + end, "/");
        prefix[end] = '\0';
        if (mkdirat(dir_fd, prefix, mode) < 0) {
            /* Besides EEXIST, a directory that is there may answer EROFS, EACCES or EPERM. */
            int r = -errno;
            if (fstatat(dir_fd, prefix, &st, 0) < 0)
                return r == -EEXIST ? -ENOTDIR : r;
            if (!S_ISDIR(st.st_mode))
                return -ENOTDIR;
        }
        prefix[end] = path[end];
    }
    return 0;
}

int fs_mkdirs_beneath(int dir_fd, const char *path, mode_t mode)
{
    int r = check_beneath(path);
    cleanup_close int at = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (r < 0 || at < 0)
        return r < 0 ? r : -errno;
    while (*path != '\0') {
        size_t len = strcspn(path, "/");
        char name[NAME_MAX + 1];
        if (len > NAME_MAX)
            return -ENAMETOOLONG;
        memcpy(name, path, len);
        name[len] = '\0';
        path += len;
        path += strspn(path, "/");
        if (len == 0)
            continue;
        if (mkdirat(at, name, mode) < 0 && errno != EEXIST)
            return -errno;
        int next = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (next < 0)
            return -errno;
        close_fd(&at);
        at = next;
    }
    return 0;
}

/* fs_remove_tree() keeps at most REMOVE_DEPTH directories open. It moves deeper ones up into
 * the top directory of the tree, under a new name, and removes them there later. So no depth
 * needs more descriptors, and the walk never uses "..", which leads elsewhere when a directory
 * is moved meanwhile. */
enum { REMOVE_DEPTH = 16 };

struct remove_level {
    DIR *dir;
    bool has_progressed; /* an entry of this directory was removed in this pass */
    char name[NAME_MAX + 1];
};

struct removal {
    struct remove_level levels[REMOVE_DEPTH];
    int depth; /* levels in use */
    int error; /* the first error, negative, or 0 */
    struct mount_id mount;
    uint64_t moved; /* number for the next name of a moved directory */
};

static void note_error(struct removal *rm, int error)
{
    if (rm->error == 0)
        rm->error = error;
}

static bool is_not_empty(int errnum)
{
    return errnum == ENOTEMPTY || errnum == EEXIST;
}

/* Opens a directory for emptying. Adds the owner's permissions where they are missing: a box
 * that runs with our own uid can leave a directory without them. */
static int open_to_empty(int dir_fd, const char *name, const struct mount_id *mount)
{
    int flags = O_RDONLY | O_DIRECTORY | O_NONBLOCK | O_NOCTTY;
    cleanup_close int fd = open_component(dir_fd, name, flags, 0);
    struct mount_id found = {0};
    struct stat st;

    if (fd == -EACCES && fchmodat(dir_fd, name, 0700, AT_SYMLINK_NOFOLLOW) == 0)
        fd = open_component(dir_fd, name, flags, 0);
    if (fd < 0)
        return fd;
    int r = get_mount(fd, &found, NULL);
    if (r < 0)
        return r;
    if (mount && !is_same_mount(&found, mount))
        return -EXDEV;
    if (fstat(fd, &st) == 0 && (st.st_mode & 0700) != 0700)
        (void)fchmod(fd, 0700);
    return take_fd(&fd);
}

static int push_level(struct removal *rm, int fd, const char *name)
{
    struct remove_level *level = &rm->levels[rm->depth];

    *level = (struct remove_level){.dir = fdopendir(fd)};
    if (!level->dir) {
        int r = -errno;
        close_fd(&fd);
        return r;
    }
    memcpy(level->name, name, strnlen(name, NAME_MAX));
    rm->depth++;
    return 0;
}

/* Moves a directory that is too deep into the top directory. */
static int move_up(struct removal *rm, int dir_fd, const char *name)
{
    int top_fd = dirfd(rm->levels[0].dir);
    char fresh[sizeof(".hermes-removed-") + 20];

    /* Skips names that are in use. renameat() replaces an empty directory, which does no
     * harm. */
    do {
        (void)snprintf(
            fresh, sizeof(fresh), ".hermes-removed-%llu", (unsigned long long)rm->moved++);
        if (renameat(dir_fd, name, top_fd, fresh) == 0) {
            rm->levels[0].has_progressed = true;
            return 0;
        }
    } while (is_not_empty(errno) || errno == ENOTDIR);
    return -errno;
}

/* Removes a file or an empty directory; -ENOTEMPTY for a directory with entries. Tries rmdir
 * before looking inside: its errno distinguishes a mount point (EBUSY) from a full
 * directory. */
static int remove_one(int dir_fd, const char *name, unsigned char type)
{
    int r = -ENOTDIR;

    if (type != DT_DIR) {
        if (unlinkat(dir_fd, name, 0) == 0)
            return 0;
        r = -errno;
        if (r != -EISDIR && r != -EPERM)
            return r;
    }
    if (unlinkat(dir_fd, name, AT_REMOVEDIR) == 0)
        return 0;
    if (errno == ENOTDIR && type == DT_DIR) /* replaced since readdir() */
        return unlinkat(dir_fd, name, 0) == 0 ? 0 : -errno;
    if (errno == ENOTDIR)
        return r;
    return is_not_empty(errno) ? -ENOTEMPTY : -errno;
}

/* Removes one entry, or goes down into it. */
static void remove_entry(struct removal *rm, const char *name, unsigned char type)
{
    struct remove_level *level = &rm->levels[rm->depth - 1];
    int dir_fd = dirfd(level->dir);
    int r = remove_one(dir_fd, name, type);

    if (r == -ENOTEMPTY) {
        /* Opened even when it is only moved: moving a directory needs write permission in it,
         * and open_to_empty() adds it. */
        cleanup_close int fd = open_to_empty(dir_fd, name, &rm->mount);
        if (fd >= 0 && rm->depth < REMOVE_DEPTH) {
            r = push_level(rm, take_fd(&fd), name);
            if (r == 0)
                return;
        } else {
            r = fd < 0 ? fd : move_up(rm, dir_fd, name);
        }
    }
    if (r == 0)
        level->has_progressed = true;
    else if (r != -ENOENT)
        note_error(rm, r);
}

/* At the end of a directory: removes it and returns to the one above. Reads it again when
 * move_up() added entries, or when the file system skipped entries because others were
 * removed. */
static void leave_level(struct removal *rm, int top_dir_fd, const char *top_name)
{
    struct remove_level *level = &rm->levels[rm->depth - 1];
    struct remove_level *above = rm->depth > 1 ? level - 1 : NULL;
    int parent_fd = above ? dirfd(above->dir) : top_dir_fd;
    const char *name = above ? level->name : top_name;
    int r = unlinkat(parent_fd, name, AT_REMOVEDIR) == 0 ? 0 : -errno;

    if (is_not_empty(-r) && level->has_progressed) {
        level->has_progressed = false;
        rewinddir(level->dir);
        return;
    }
    if (r == 0 && above)
        above->has_progressed = true;
    else if (r == 0)
        rm->error = 0; /* everything was removed, despite earlier errors */
    else if (r != -ENOENT)
        note_error(rm, r);
    (void)closedir(level->dir);
    rm->depth--;
}

static bool is_dots(const char *name)
{
    return name[0] == '.' && (name[1] == '\0' || (name[1] == '.' && name[2] == '\0'));
}

int fs_remove_tree(int dir_fd, const char *name)
{
    const char *slash = strrchr(name, '/');
    const char *last = slash ? slash + 1 : name;
    struct removal rm = {0};

    if (last[0] == '\0' || is_dots(last))
        return -EINVAL;
    int r = remove_one(dir_fd, name, DT_UNKNOWN);
    if (r != -ENOTEMPTY)
        return r == -ENOENT ? 0 : r;

    cleanup_close int fd = open_to_empty(dir_fd, name, NULL);
    if (fd < 0)
        return fd == -ENOENT ? 0 : fd;
    r = get_mount(fd, &rm.mount, NULL);
    if (r == 0)
        r = push_level(&rm, take_fd(&fd), "");
    if (r < 0)
        return r;
    while (rm.depth > 0) {
        errno = 0;
        struct dirent *entry = readdir(rm.levels[rm.depth - 1].dir);
        if (!entry) {
            if (errno != 0)
                note_error(&rm, -errno);
            leave_level(&rm, dir_fd, name);
        } else if (!is_dots(entry->d_name)) {
            remove_entry(&rm, entry->d_name, entry->d_type);
        }
    }
    return rm.error;
}

/* A reflink copies the whole file and moves no offsets. Therefore it is used only for a whole
 * copy into an empty file. */
static bool copy_by_reflink(int from_fd, int to_fd)
{
    struct stat st;

    if (lseek(from_fd, 0, SEEK_CUR) != 0 || lseek(to_fd, 0, SEEK_CUR) != 0)
        return false;
    if (fstat(to_fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size != 0)
        return false;
    if (ioctl(to_fd, FICLONE, from_fd) < 0)
        return false;
    return lseek(from_fd, 0, SEEK_END) >= 0 && lseek(to_fd, 0, SEEK_END) >= 0;
}

static int copy_by_read(int from_fd, int to_fd)
{
    char chunk[32 * 1024];

    for (;;) {
        ssize_t n = read(from_fd, chunk, sizeof(chunk));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : 0;
        int r = fs_write_all(to_fd, chunk, (size_t)n);
        if (r < 0)
            return r;
    }
}

int fs_copy_fd(int from_fd, int to_fd)
{
    if (copy_by_reflink(from_fd, to_fd))
        return 0;
    for (;;) {
        ssize_t n = copy_file_range(from_fd, NULL, to_fd, NULL, 1u << 30, 0);
        if (n < 0 && (errno == ENOSPC || errno == EDQUOT || errno == EFBIG || errno == EIO))
            return -errno;
        /* Any other error means "not for these files". So may 0, because files of /proc have
         * content but no size. Reading continues from the same offsets and finds the end by
         * itself. */
        if (n <= 0)
            return copy_by_read(from_fd, to_fd);
    }
}

int fs_memfd_sealed(const char *name, const void *data, size_t len)
{
    cleanup_close int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);

    if (fd < 0)
        return -errno;
    int r = fs_write_all(fd, data, len);
    if (r < 0)
        return r;
    if (lseek(fd, 0, SEEK_SET) < 0)
        return -errno;
    if (fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) < 0)
        return -errno;
    return take_fd(&fd);
}
