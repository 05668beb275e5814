/* SPDX-License-Identifier: Apache-2.0 */

/* See unpack.h. Believes nothing: every directory is opened from the top, entry by entry,
 * without following a link. A name that the layer has already is replaced only by the same kind
 * of thing, so no order of entries can turn a directory into a link. Deletions concern the
 * layers below: with an entry of the same name, in any order, they only make a directory
 * opaque. */

#include "layer/unpack.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/os/fs.h"
#include "base/str.h"
#include "layer/tar_read.h"
#include "layer/whiteout.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

struct unpacker {
    int top_fd;
    struct tar_reader tar;
    struct layer_limits limits;
    struct layer_report report;
    struct err *err;
    char path[LAYER_PATH_MAX + 1]; /* of the current entry, clean */
    uint8_t piece[LAYER_PIECE];
};

static const struct timespec layer_times[2] = {{.tv_sec = LAYER_TIME}, {.tv_sec = LAYER_TIME}};

static int refuse(struct unpacker *u, const char *why)
{
    char shown[256];
    return err_set(u->err, ERR_INVALID, EINVAL, "%s: %s", layer_show(u->path, shown), why);
}

static int fail(struct unpacker *u, int r)
{
    char shown[256];
    if (r == -ELOOP)
        return refuse(u, "it lies behind a link");
    if (r == -ENOTDIR)
        return refuse(u, "it lies behind a file");
    return err_set(u->err, r == -ENOSPC || r == -EDQUOT ? ERR_NO_SPACE : err_code_of(-r), -r,
        "cannot make %s: %s", layer_show(u->path, shown), strerror(-r));
}

static int count_entry(struct unpacker *u)
{
    if (++u->report.entries > u->limits.max_entries)
        return err_set(u->err, ERR_TOO_LARGE, EFBIG,
            "the archive has more entries than allowed; the limit is %llu",
            (unsigned long long)u->limits.max_entries);
    return 0;
}

static int count_bytes(struct unpacker *u, uint64_t bytes)
{
    if (bytes > u->limits.max_bytes - u->report.bytes)
        return err_set(u->err, ERR_TOO_LARGE, EFBIG,
            "the files of the archive have more bytes than allowed; the limit is %llu",
            (unsigned long long)u->limits.max_bytes);
    u->report.bytes += bytes;
    return 0;
}

static int set_opaque(struct unpacker *u, int dir_fd)
{
    int r = whiteout_hide(dir_fd);
    u->report.deletions += r == 0;
    return r < 0 ? fail(u, r) : 0;
}

/* Makes the directory unless it is there, and opens it. A deletion of the same name becomes an
 * opaque directory. */
static int enter_dir(struct unpacker *u, int up_fd, const char *name, bool is_counted)
{
    bool was_whiteout = false;
    int r = 0;
    if (mkdirat(up_fd, name, 0755) == 0) {
        r = is_counted ? count_entry(u) : 0;
    } else {
        struct stat st;
        if (errno != EEXIST || fstatat(up_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
            return fail(u, -errno);
        was_whiteout = whiteout_is(up_fd, whiteout_dir(up_fd), name, &st);
        if (was_whiteout && (unlinkat(up_fd, name, 0) < 0 || mkdirat(up_fd, name, 0755) < 0))
            return fail(u, -errno);
    }
    if (r < 0)
        return r;
    cleanup_close int fd = fs_open_beneath(up_fd, name, O_RDONLY | O_DIRECTORY, 0);
    if (fd < 0)
        return fail(u, fd);
    if (was_whiteout && (r = set_opaque(u, fd)) < 0)
        return r;
    return take_fd(&fd);
}

/* Opens the directory of a clean path, and makes missing directories. *ret_name is the last
 * name. */
static int open_parent(struct unpacker *u, const char *path, const char **ret_name)
{
    char part[LAYER_PATH_MAX + 1];
    const char *slash = strrchr(path, '/');
    *ret_name = slash ? slash + 1 : path;
    (void)snprintf(part, sizeof(part), "%.*s", slash ? (int)(slash - path) : 0, path);
    int fd = slash ? fs_open_beneath(u->top_fd, part, O_RDONLY | O_DIRECTORY, 0) : -ENOENT;
    if (fd >= 0)
        return fd;
    cleanup_close int at = openat(u->top_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (at < 0)
        return fail(u, -errno);
    for (char *rest = slash ? part : NULL; rest;) {
        const char *name = strsep(&rest, "/");
        int next = enter_dir(u, at, name, true);
        if (next < 0)
            return next;
        close_fd(&at);
        at = next;
    }
    return take_fd(&at);
}

/* Removes the entry with this name, to make room for an entry that is no directory. */
static int clear_name(struct unpacker *u, int up_fd, const char *name)
{
    if (unlinkat(up_fd, name, 0) == 0 || errno == ENOENT)
        return 0;
    return errno == EISDIR ? refuse(u, "the archive has a directory of that name already")
                           : fail(u, -errno);
}

static int unpack_file(struct unpacker *u, int up_fd, const char *name)
{
    const struct tar_entry *e = &u->tar.entry;
    int r = count_bytes(u, e->size);
    if (r == 0)
        r = clear_name(u, up_fd, name);
    if (r < 0)
        return r;
    cleanup_close int fd = fs_open_beneath(
        up_fd, name, O_WRONLY | O_CREAT | O_EXCL, e->mode & S_IXUSR ? 0755 : 0644);
    if (fd < 0)
        return fail(u, fd);
    ssize_t n;
    while ((n = tar_read_data(&u->tar, u->piece, sizeof(u->piece), u->err)) > 0) {
        if ((r = fs_write_all(fd, u->piece, (size_t)n)) < 0)
            return fail(u, r);
    }
    if (n < 0)
        return (int)n;
    return futimens(fd, layer_times) < 0 ? fail(u, -errno) : 0;
}

static int unpack_symlink(struct unpacker *u, int up_fd, const char *name)
{
    const char *target = u->tar.entry.link;
    if (!*target)
        return refuse(u, "a link without a target");
    int r = clear_name(u, up_fd, name);
    if (r < 0)
        return r;
    if (symlinkat(target, up_fd, name) < 0 ||
        utimensat(up_fd, name, layer_times, AT_SYMLINK_NOFOLLOW) < 0)
        return fail(u, -errno);
    return 0;
}

static int unpack_hard_link(struct unpacker *u, int up_fd, const char *name)
{
    char target[LAYER_PATH_MAX + 1];
    struct stat st;
    const char *problem = tar_clean_path(u->tar.entry.link, target);
    if (problem || !*target)
        return refuse(u, problem ? problem : "a hard link to nothing");
    if (str_eq(target, u->path))
        return refuse(u, "a hard link to itself");
    const char *target_name = NULL;
    cleanup_close int target_up = open_parent(u, target, &target_name);
    if (target_up < 0)
        return target_up;
    if (fstatat(target_up, target_name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode) ||
        whiteout_is(target_up, whiteout_dir(target_up), target_name, &st))
        return refuse(u, "a hard link to what is not a file of this archive so far");
    int r = count_bytes(u, (uint64_t)st.st_size);
    if (r == 0)
        r = clear_name(u, up_fd, name);
    if (r < 0)
        return r;
    if (linkat(target_up, target_name, up_fd, name, 0) < 0)
        return fail(u, -errno);
    u->report.hard_links++;
    return 0;
}

static int unpack_dir(struct unpacker *u, int up_fd, const char *name)
{
    cleanup_close int fd = enter_dir(u, up_fd, name, false);
    return fd < 0 ? fd : 0;
}

static int unpack_deletion(struct unpacker *u, int up_fd, const char *name)
{
    struct stat st;
    const char *deleted = name + strlen(LAYER_WHITEOUT);
    if (u->tar.entry.type != TAR_FILE)
        return refuse(u, "a deletion that is not a file");
    if (!*deleted || str_eq(deleted, ".") || str_eq(deleted, ".."))
        return refuse(u, "a deletion of nothing");
    int r = whiteout_make(up_fd, deleted);
    u->report.deletions += r == 0;
    if (r == -EOPNOTSUPP)
        return refuse(u, "deletions in layers need Linux 6.7; flatten the image first");
    if (r != -EEXIST)
        return r < 0 ? fail(u, r) : 0;
    if (fstatat(up_fd, deleted, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return fail(u, -errno);
    if (!S_ISDIR(st.st_mode))
        return 0; /* this layer's own file hides the one below */
    cleanup_close int fd = fs_open_beneath(up_fd, deleted, O_RDONLY | O_DIRECTORY, 0);
    return fd < 0 ? fail(u, fd) : set_opaque(u, fd);
}

/* Opaque at the top would hide the whole image below, and overlayfs does not look there. */
static int unpack_opaque(struct unpacker *u, int up_fd, const char *name)
{
    if (u->tar.entry.type != TAR_FILE)
        return refuse(u, "a deletion that is not a file");
    if (str_eq(u->path, name))
        return refuse(u, "it would hide the whole image below; flatten the image first");
    return set_opaque(u, up_fd);
}

static int leave_out_device(struct unpacker *u, int up_fd, const char *name)
{
    u->report.devices++;
    return 0;
}

static int leave_out(struct unpacker *u, int up_fd, const char *name)
{
    return 0;
}

typedef int make_entry(struct unpacker *u, int up_fd, const char *name);

/* Chooses the function, by the name first, then by the type. */
static make_entry *maker_of(enum tar_type type, const char *name)
{
    if (str_eq(name, LAYER_OPAQUE))
        return unpack_opaque;
    if (str_has_prefix(name, LAYER_WHITEOUT LAYER_WHITEOUT))
        return leave_out; /* book-keeping of an old file system (aufs) */
    if (str_has_prefix(name, LAYER_WHITEOUT))
        return unpack_deletion;
    switch (type) {
    case TAR_FILE:
        return unpack_file;
    case TAR_HARD_LINK:
        return unpack_hard_link;
    case TAR_SYMLINK:
        return unpack_symlink;
    case TAR_DIRECTORY:
        return unpack_dir;
    default:
        return leave_out_device;
    }
}

/* A name that means a deletion cannot be a directory: overlayfs and other programs would
 * disagree about its contents. */
static bool is_below_deletion(const char *path)
{
    const char *last = strrchr(path, '/');
    for (const char *at = path; last && at <= last; at = strchr(at, '/') + 1) {
        if (str_has_prefix(at, LAYER_WHITEOUT))
            return true;
    }
    return false;
}

/* Whether the directory of a path is something else in this layer, which then hides all that
 * the layers below have there. */
static bool is_hidden(const struct unpacker *u, const char *path)
{
    char up[LAYER_PATH_MAX + 1];
    struct stat st;
    const char *slash = strrchr(path, '/');
    if (!slash)
        return false;
    (void)snprintf(up, sizeof(up), "%.*s", (int)(slash - path), path);
    cleanup_close int fd = fs_open_beneath(u->top_fd, up, O_PATH | O_NOFOLLOW, 0);
    return fd < 0 ? fd == -ELOOP || fd == -ENOTDIR
                  : fstat(fd, &st) == 0 && !S_ISDIR(st.st_mode);
}

static int unpack_entry(struct unpacker *u)
{
    const struct tar_entry *e = &u->tar.entry;
    const char *problem = tar_clean_path(e->path, u->path);
    int r = count_entry(u);
    if (r < 0)
        return r;
    if (problem) {
        (void)snprintf(u->path, sizeof(u->path), "%s", e->path);
        return refuse(u, problem);
    }
    if (!*u->path)
        return e->type == TAR_DIRECTORY ? 0 : refuse(u, "an entry without a name");
    if (is_below_deletion(u->path))
        return refuse(u, "it lies behind a deletion");
    u->report.attributes += e->attributes;
    u->report.set_ids += (e->mode & (S_ISUID | S_ISGID)) && e->type == TAR_FILE;
    const char *slash = strrchr(u->path, '/'), *name;
    if (str_has_prefix(slash ? slash + 1 : u->path, LAYER_WHITEOUT) && is_hidden(u, u->path))
        return 0; /* umoci deletes the content of a directory that became a file */
    cleanup_close int up_fd = open_parent(u, u->path, &name);
    return up_fd < 0 ? up_fd : maker_of(e->type, name)(u, up_fd, name);
}

uint64_t layer_stream_max(const struct layer_limits *limits)
{
    /* Headers and padding of an entry, with a long name or attributes now and then. */
    const uint64_t per_entry = 4 * (uint64_t)TAR_BLOCK, rest = 1 << 20;
    return limits->max_bytes + limits->max_entries * per_entry + rest;
}

int layer_unpack(int dir_fd, layer_source *read, void *context,
    const struct layer_limits *limits, struct layer_report *ret, struct err *err)
{
    cleanup_free struct unpacker *u = xcalloc(1, sizeof(*u));
    u->top_fd = dir_fd;
    u->tar = (struct tar_reader){.read = read, .context = context};
    u->limits = *limits;
    u->err = err;
    int r;
    while ((r = tar_next(&u->tar, err)) > 0) {
        if ((r = unpack_entry(u)) < 0)
            return r;
    }
    if (r == 0)
        r = tar_drain(&u->tar, err);
    if (r == 0)
        *ret = u->report;
    return r;
}
