/* SPDX-License-Identifier: Apache-2.0 */

/* See pack.h. Goes down the tree with one open directory per level. The names of one directory
 * are sorted as they stand in the archive, with the slash of a directory, so the paths of the
 * whole archive are in the order of their bytes. */

#include "layer/pack.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "layer/tar_write.h"
#include "layer/whiteout.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

struct packer {
    struct tar_writer out;
    const struct strv *leave_out;
    struct err *err;
    size_t held; /* bytes of names of the directories on the way to the current entry */
    char path[LAYER_PATH_MAX + 2]; /* of the current entry, as in the archive */
    uint8_t piece[LAYER_PIECE];
};

/* A server packs layers of strangers: the memory for their names has a bound. */
enum { NAMES_MAX = 48 << 20, NAME_BYTES = 64 };

/* An entry of a directory, by its name in the archive. */
struct child {
    char *shown;
    mode_t type; /* S_IFCHR: a deletion; 0: the sign of an opaque directory */
};

struct children {
    struct child *items;
    size_t count;
    size_t bytes; /* that they take in memory, about */
};

static void children_done(struct children *c)
{
    for (size_t i = 0; i < c->count; i++)
        free(c->items[i].shown);
    free(c->items);
}

static void children_add(struct children *c, mode_t type, const char *before, const char *name)
{
    c->items = xgrow(c->items, c->count, sizeof(*c->items));
    c->items[c->count++] = (struct child){
        .shown = xasprintf("%s%s%s", before, name, S_ISDIR(type) ? "/" : ""),
        .type = type,
    };
    c->bytes += strlen(name) + NAME_BYTES;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct child *)a)->shown, ((const struct child *)b)->shown);
}

static int refuse(struct packer *p, const char *why)
{
    char shown[256];
    return err_set(p->err, ERR_INVALID, EINVAL, "%s: %s", layer_show(p->path, shown), why);
}

/* An output that fails is the reader's affair; everything else is the disk's. */
static int fail(struct packer *p, int r)
{
    char shown[256];
    return err_set(p->err, err_code_of(-r), -r, "cannot pack %s: %s",
        layer_show(p->path, shown), strerror(-r));
}

static bool is_left_out(const struct packer *p, size_t path_len)
{
    char path[LAYER_PATH_MAX + 2];
    (void)snprintf(path, sizeof(path), "%.*s", (int)path_len, p->path);
    for (size_t i = 0; i < p->leave_out->count; i++) {
        if (str_glob_match(p->leave_out->items[i], path))
            return true;
    }
    return false;
}

static int pack_file(struct packer *p, int dir_fd, const char *name)
{
    cleanup_close int fd =
        openat(dir_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0)
        return fail(p, -errno);
    uint64_t left = (uint64_t)st.st_size;
    int r = tar_put_header(
        &p->out, TAR_FILE, p->path, NULL, left, st.st_mode & S_IXUSR ? 0755 : 0644);
    while (r == 0 && left > 0) {
        ssize_t n = read(fd, p->piece, left < sizeof(p->piece) ? left : sizeof(p->piece));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? fail(p, -errno) : refuse(p, "it became shorter while it was read");
        left -= (uint64_t)n;
        r = tar_put_data(&p->out, p->piece, (size_t)n);
    }
    if (r == 0)
        r = tar_put_pad(&p->out, (uint64_t)st.st_size);
    return r < 0 ? fail(p, r) : 0;
}

static int pack_symlink(struct packer *p, int dir_fd, const char *name)
{
    char target[LAYER_PATH_MAX + 1];
    ssize_t n = readlinkat(dir_fd, name, target, sizeof(target));
    if (n < 0)
        return fail(p, -errno);
    if ((size_t)n == sizeof(target))
        return refuse(p, "the target of the link is too long");
    target[n] = '\0';
    int r = tar_put_header(&p->out, TAR_SYMLINK, p->path, target, 0, 0777);
    return r < 0 ? fail(p, r) : 0;
}

static int read_children(struct packer *p, int dir_fd, struct children *c)
{
    enum whiteout_dir kind = whiteout_dir(dir_fd);
    if (kind == WHITEOUT_DIR_OPAQUE)
        children_add(c, 0, LAYER_OPAQUE, "");
    int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    cleanup_closedir DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir)
        return fail(p, -errno);
    struct dirent *e;
    while (errno = 0, (e = readdir(dir))) {
        struct stat st;
        if (str_eq(e->d_name, ".") || str_eq(e->d_name, ".."))
            continue;
        if (fstatat(dir_fd, e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
            return fail(p, -errno);
        if (str_has_prefix(e->d_name, LAYER_WHITEOUT))
            return refuse(p, "a name in it begins with .wh., which means a deletion in layers");
        if (whiteout_is(dir_fd, kind, e->d_name, &st)) {
            if (kind != WHITEOUT_DIR_OPAQUE)
                children_add(c, S_IFCHR, LAYER_WHITEOUT, e->d_name);
        } else if (S_ISDIR(st.st_mode) || S_ISREG(st.st_mode) || S_ISLNK(st.st_mode)) {
            children_add(c, st.st_mode & S_IFMT, "", e->d_name);
        }
        if (c->bytes > NAMES_MAX - p->held)
            return refuse(p, "it has too many names");
    }
    if (errno)
        return fail(p, -errno);
    if (c->count)
        qsort(c->items, c->count, sizeof(*c->items), by_name);
    return 0;
}

static int pack_dir(struct packer *p, int dir_fd, size_t path_len, int depth);

static int pack_subdir(
    struct packer *p, int dir_fd, const char *name, size_t path_len, int depth)
{
    if (depth >= LAYER_DEPTH_MAX)
        return refuse(p, "the directory is too deep");
    int r = tar_put_header(&p->out, TAR_DIRECTORY, p->path, NULL, 0, 0755);
    if (r < 0)
        return fail(p, r);
    cleanup_close int fd =
        openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return fd < 0 ? fail(p, -errno) : pack_dir(p, fd, path_len, depth + 1);
}

/* The name on disk is the one in the archive without the sign of a deletion and the slash. */
static int pack_child(
    struct packer *p, int dir_fd, const struct child *c, size_t path_len, int depth)
{
    switch (c->type) {
    case S_IFDIR: {
        cleanup_free char *name = xstrndup(c->shown, strlen(c->shown) - 1);
        return pack_subdir(p, dir_fd, name, path_len, depth);
    }
    case S_IFREG:
        return pack_file(p, dir_fd, c->shown);
    case S_IFLNK:
        return pack_symlink(p, dir_fd, c->shown);
    default: {
        int r = tar_put_header(&p->out, TAR_FILE, p->path, NULL, 0, 0644);
        return r < 0 ? fail(p, r) : 0;
    }
    }
}

/* path_len bytes of p->path are the path of the directory, with its slash. */
static int pack_dir(struct packer *p, int dir_fd, size_t path_len, int depth)
{
    __attribute__((cleanup(children_done))) struct children all = {0};
    int r = read_children(p, dir_fd, &all);
    p->held += all.bytes;
    for (size_t i = 0; r == 0 && i < all.count; i++) {
        const struct child *c = &all.items[i];
        size_t len = strlen(c->shown);
        p->path[path_len] = '\0';
        size_t bare_len = path_len + len - (S_ISDIR(c->type) ? 1 : 0);
        if (bare_len > LAYER_PATH_MAX)
            return refuse(p, "a path in it is too long");
        memcpy(p->path + path_len, c->shown, len + 1);
        if (!is_left_out(p, bare_len))
            r = pack_child(p, dir_fd, c, path_len + len, depth);
    }
    p->held -= all.bytes;
    return r;
}

int layer_pack(
    int dir_fd, const struct strv *leave_out, layer_sink *write, void *context, struct err *err)
{
    cleanup_free struct packer *p = xcalloc(1, sizeof(*p));
    p->out = (struct tar_writer){.write = write, .context = context};
    p->leave_out = leave_out;
    p->err = err;
    int r = pack_dir(p, dir_fd, 0, 0);
    if (r < 0)
        return r;
    p->path[0] = '\0';
    r = tar_put_end(&p->out);
    return r < 0 ? fail(p, r) : 0;
}
