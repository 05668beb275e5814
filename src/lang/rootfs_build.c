/* SPDX-License-Identifier: Apache-2.0 */

/* See rootfs_build.h. Runs once per root tree, host and Hermes version, and may take its time:
 * lang/rootfs.c saves the result and reads it back in microseconds later. All inputs belong to
 * the operator: base.json, runtime.json and the host's own directories. */

#include "lang/rootfs_build.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/os/fs.h"
#include "base/str.h"
#include "lang/hostpath.h"
#include "lang/json_file.h"
#include "lang/rootfs_skeleton.h"
#include "lang/seed.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

struct base_def {
    struct strv tools;
    struct strv dirs;
    struct strv links; /* "/bin=usr/bin" */
    struct strv files; /* "/etc/passwd=..." */
    struct strv loaders;
    struct root_spec root;
};

static void base_def_done(struct base_def *base)
{
    strv_done(&base->tools);
    strv_done(&base->dirs);
    strv_done(&base->links);
    strv_done(&base->files);
    strv_done(&base->loaders);
    for (size_t i = 0; i < base->root.path_count; i++) {
        free(base->root.paths[i].host);
        free(base->root.paths[i].box);
    }
    free(base->root.paths);
}

static int read_base(const struct root_build *build, struct base_def *base, struct err *err)
{
    static const char *const keys[] = {
        "tools", "dirs", "links", "files", "loaders", "paths", NULL};
    struct json_file file;
    int r = json_file_parse(&file, build->base_path, build->base_text, build->base_len, err);

    if (r < 0)
        return r;
    struct json_at at = {.file = &file, .object = file.root, .name = ""};
    if ((r = json_at_keys(at, keys)) == 0 &&
        (r = json_at_strv(at, "tools", &base->tools)) == 0 &&
        (r = json_at_strv(at, "dirs", &base->dirs)) == 0 &&
        (r = json_at_map(at, "links", &base->links)) == 0 &&
        (r = json_at_map(at, "files", &base->files)) == 0 &&
        (r = json_at_strv(at, "loaders", &base->loaders)) == 0)
        r = json_at_paths(at, "paths", NULL, &base->root);
    json_file_done(&file);
    return r;
}

/* Whether executing the file gives the caller more privileges. A file that cannot be opened
 * counts as one that does. */
static bool is_privileged(int dir_fd, const char *name, const struct stat *st)
{
    if (!S_ISREG(st->st_mode))
        return false;
    if (st->st_mode & (S_ISUID | S_ISGID))
        return true;
    if ((st->st_mode & 0111) == 0)
        return false;
    cleanup_close int fd = openat(dir_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    return fd < 0 || fgetxattr(fd, "security.capability", NULL, 0) > 0;
}

/* Makes a hard link where possible, else a copy: across file systems, or where the kernel
 * forbids links to files of other owners (fs.protected_hardlinks). */
static int place_file(int from_dir, const char *source, int dir_fd, const char *name)
{
    if (linkat(from_dir, source, dir_fd, name, 0) == 0 || errno == EEXIST)
        return 0;
    cleanup_close int from = openat(from_dir, source, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (from < 0)
        return -errno;
    cleanup_close int to = openat(dir_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0755);
    if (to < 0)
        return -errno;
    int r = fs_copy_fd(from, to);
    if (r == 0 && fchmod(to, 0555) < 0)
        r = -errno;
    return r;
}

/* Adds one program under its own name, or under NAME when written "NAME=program", and follows
 * any chain of links (/etc/alternatives) to it. Leaves out a program that the host lacks: the
 * presence of the toolchain was checked before. */
static int add_tool(const char *tool, int bin_fd, struct err *err)
{
    static const char *const dirs[] = {"/usr/bin", "/bin", "/usr/sbin", "/sbin"};
    const char *equals = strchr(tool, '=');
    cleanup_free char *renamed =
        equals != NULL ? xstrndup(tool, (size_t)(equals - tool)) : NULL;
    if (equals != NULL)
        tool = equals + 1;
    const char *slash = strrchr(tool, '/');
    const char *name = renamed != NULL ? renamed : slash != NULL ? slash + 1 : tool;

    for (size_t i = 0; i < sizeof(dirs) / sizeof(dirs[0]); i++) {
        cleanup_free char *path =
            slash != NULL ? xstrdup(tool) : xasprintf("%s/%s", dirs[i], tool);
        char real[PATH_MAX];
        struct stat st;

        if (realpath(path, real) == NULL || stat(real, &st) < 0)
            continue;
        if (!S_ISREG(st.st_mode) || is_privileged(AT_FDCWD, real, &st))
            return 0;
        int r = place_file(AT_FDCWD, real, bin_fd, name);
        if (r < 0)
            return err_set(err, ERR_INTERNAL, -r, "cannot put %s into the tool directory: %s",
                real, strerror(-r));
        return 0;
    }
    return 0;
}

static int fail(struct err *err, int error, const char *path)
{
    if (error == -ENAMETOOLONG)
        return err_set(err, ERR_INTERNAL, ENAMETOOLONG,
            "the root tree has a path of more than %d bytes: %s", SPAWN_PATH_MAX - 1, path);
    if (error == -E2BIG)
        return err_set(err, ERR_INTERNAL, E2BIG, "the root tree has more than %d entries",
            SPAWN_MAX_ENTRIES);
    return err_set(
        err, ERR_INTERNAL, -error, "cannot make %s in the tree: %s", path, strerror(-error));
}

static int fill_bin(
    const struct root_build *build, int tree_fd, const struct base_def *base, struct err *err)
{
    int r = root_tree_dir(tree_fd, "/usr/bin");
    cleanup_close int bin_fd =
        r < 0 ? -EBADF : openat(tree_fd, "usr/bin", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (bin_fd < 0)
        return fail(err, r < 0 ? r : -errno, "/usr/bin");
    /* The runtime's programs come first, so that its `python3` wins over a base tool of that
     * name. */
    for (size_t i = 0; r == 0 && i < build->spec->tools.count; i++)
        r = add_tool(build->spec->tools.items[i], bin_fd, err);
    for (size_t i = 0; r == 0 && i < base->tools.count; i++)
        r = add_tool(base->tools.items[i], bin_fd, err);
    return r;
}

/* Adds entries written as "path=rest". */
static int add_pairs(int tree_fd, const struct strv *pairs,
    int (*add)(int tree_fd, const char *path, const char *rest), struct err *err)
{
    for (size_t i = 0; i < pairs->count; i++) {
        const char *equals = strchr(pairs->items[i], '=');
        cleanup_free char *path = xstrndup(pairs->items[i], (size_t)(equals - pairs->items[i]));
        int r = add(tree_fd, path, equals + 1);

        if (r < 0)
            return fail(err, r, path);
    }
    return 0;
}

/* Binds `source` at `path` and makes the mount point. Below another bind, the mount point is in
 * that bind's source; ours is hidden and does no harm. */
static int add_bind(const struct root_build *build, struct root_entries *entries,
    const char *path, const char *source, bool is_dir, struct err *err)
{
    int r =
        is_dir ? root_tree_dir(build->tree_fd, path) : root_tree_file(build->tree_fd, path, "");

    if (r == 0)
        r = root_entry_add(entries, ENTRY_BIND, path, source);
    return r < 0 ? fail(err, r, path) : 0;
}

/* On Debian the fixed name of the dynamic loader (/lib64/ld-linux-x86-64.so.2) is a link into
 * the library directory. The link is copied, rather than its directory bound. */
static int add_loaders(const struct root_build *build, struct root_entries *entries,
    const struct strv *patterns, struct err *err)
{
    CLEANUP(strv_done) struct strv found = {0};
    int r = 0;

    for (size_t i = 0; i < patterns->count; i++)
        hostpath_glob(patterns->items[i], &found);
    for (size_t i = 0; r == 0 && i < found.count; i++) {
        char target[PATH_MAX];
        ssize_t len = readlink(found.items[i], target, sizeof(target) - 1);

        target[len > 0 ? len : 0] = '\0';
        if (len <= 0)
            r = add_bind(build, entries, found.items[i], found.items[i], false, err);
        else if ((r = root_tree_link(build->tree_fd, found.items[i], target)) < 0)
            r = fail(err, r, found.items[i]);
    }
    return r;
}

/* Opens a directory of the host for reading; NULL when it cannot be. The walks below use
 * descriptors and follow no link, so a directory that somebody exchanges meanwhile leads
 * nowhere. */
static DIR *open_host_dir(int dir_fd, const char *name)
{
    int fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);

    if (d == NULL)
        close_fd(&fd);
    return d;
}

/* The next entry beside "." and "..", or NULL. */
static const char *next_name(DIR *d)
{
    struct dirent *entry = readdir(d);

    while (entry != NULL && (str_eq(entry->d_name, ".") || str_eq(entry->d_name, "..")))
        entry = readdir(d);
    return entry != NULL ? entry->d_name : NULL;
}

/* Lists the privileged files below a directory. `below` is its path, "" for the topmost. */
static void find_privileged(DIR *d, const char *below, struct strv *ret)
{
    for (const char *name; d != NULL && (name = next_name(d)) != NULL;) {
        struct stat st;

        if (fstatat(dirfd(d), name, &st, AT_SYMLINK_NOFOLLOW) < 0)
            continue; /* removed since readdir() */
        if (S_ISDIR(st.st_mode)) {
            cleanup_free char *path = xasprintf("%s/%s", below, name);
            cleanup_closedir DIR *inner = open_host_dir(dirfd(d), name);
            find_privileged(inner, path, ret);
        } else if (is_privileged(dirfd(d), name, &st)) {
            strv_add_owned(ret, xasprintf("%s/%s", below, name));
        }
    }
}

void root_walks_done(struct root_walks *walks)
{
    for (size_t i = 0; i < walks->count; i++) {
        free(walks->items[i].dir);
        strv_done(&walks->items[i].privileged);
    }
    free(walks->items);
    *walks = (struct root_walks){0};
}

static const struct root_walk *walk(struct root_walks *walks, const char *dir)
{
    for (size_t i = 0; i < walks->count; i++) {
        if (str_eq(walks->items[i].dir, dir))
            return &walks->items[i];
    }
    walks->items = xreallocarray(walks->items, walks->count + 1, sizeof(*walks->items));
    struct root_walk *new = &walks->items[walks->count++];
    *new = (struct root_walk){.dir = xstrdup(dir)};
    cleanup_closedir DIR *d = open_host_dir(AT_FDCWD, dir);
    find_privileged(d, "", &new->privileged);
    return new;
}

/* Covers the privileged files below a bound directory. */
static int mask_tree(const struct root_build *build, struct root_entries *entries,
    const char *dir, const char *box, struct err *err)
{
    const struct strv *privileged = &walk(build->walks, dir)->privileged;
    int r = 0;

    for (size_t i = 0; r == 0 && i < privileged->count; i++) {
        cleanup_free char *box_path = xasprintf("%s%s", box, privileged->items[i]);
        r = root_entry_add(entries, ENTRY_MASK, box_path, "");
        r = r < 0 ? fail(err, r, box_path) : 0;
    }
    return r;
}

static int copy_link(int tree_fd, int dir_fd, const char *name, const char *box)
{
    char target[PATH_MAX];

    /* A hard link to the link, where possible: it needs no inode of its own. */
    if (linkat(dir_fd, name, tree_fd, box + 1, 0) == 0)
        return 0;
    ssize_t n = readlinkat(dir_fd, name, target, sizeof(target) - 1);
    target[n > 0 ? n : 0] = '\0';
    return root_tree_link(tree_fd, box, target);
}

/* Puts a file, a link or a whole directory into the tree, which has the directory above it. */
static int copy_one(const struct root_build *build, int dir_fd, const char *name,
    const char *box, struct err *err)
{
    struct stat st;
    int r = 0;

    if (fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return 0; /* removed since readdir() */
    if (S_ISLNK(st.st_mode)) {
        r = copy_link(build->tree_fd, dir_fd, name, box);
    } else if (S_ISREG(st.st_mode) && !is_privileged(dir_fd, name, &st)) {
        r = place_file(dir_fd, name, build->tree_fd, box + 1);
    } else if (S_ISDIR(st.st_mode)) {
        cleanup_closedir DIR *d = open_host_dir(dir_fd, name);
        r = root_tree_dir(build->tree_fd, box);
        for (const char *entry; r == 0 && d != NULL && (entry = next_name(d)) != NULL;) {
            cleanup_free char *box_path = xasprintf("%s/%s", box, entry);
            if ((r = copy_one(build, dirfd(d), entry, box_path, err)) < 0)
                return r;
        }
    }
    return r < 0 ? fail(err, r, box) : 0;
}

static int bind_one(const struct root_build *build, struct root_entries *entries,
    const char *host, const char *box, struct err *err)
{
    struct stat st;

    if (stat(host, &st) < 0)
        return err_set(err, ERR_UNAVAILABLE, errno, "%s: %s", host, strerror(errno));
    char real[PATH_MAX]; /* an operator may name a link; the walk below follows none */
    if (realpath(host, real) == NULL || is_privileged(AT_FDCWD, real, &st))
        return 0;
    int r = add_bind(build, entries, box, host, S_ISDIR(st.st_mode), err);
    return r == 0 && S_ISDIR(st.st_mode) ? mask_tree(build, entries, real, box, err) : r;
}

static int copy_path(
    const struct root_build *build, const char *host, const char *box, struct err *err)
{
    int r = root_tree_parents(build->tree_fd, box);
    return r < 0 ? fail(err, r, box) : copy_one(build, AT_FDCWD, host, box, err);
}

static int bind_paths(const struct root_build *build, const struct root_spec *spec,
    struct root_entries *entries, struct err *err)
{
    int r = 0;

    for (size_t i = 0; r == 0 && i < spec->path_count; i++) {
        const struct root_path *path = &spec->paths[i];
        CLEANUP(strv_done) struct strv found = {0};

        hostpath_glob(path->host, &found);
        if (found.count == 0 && !path->optional)
            return err_set(err, ERR_UNAVAILABLE, ENOENT,
                "%s is missing on this host but a box needs it", path->host);
        /* With a fixed place in the box, only the newest match is used. */
        size_t count = path->box != NULL && found.count > 1 ? 1 : found.count;
        for (size_t k = 0; r == 0 && k < count; k++) {
            const char *box = path->box != NULL ? path->box : found.items[k];
            r = path->copy ? copy_path(build, found.items[k], box, err)
                           : bind_one(build, entries, found.items[k], box, err);
        }
    }
    return r;
}

/* Whether a list of "KEY=value" has this key. */
static bool has_pair(const struct strv *pairs, const char *key)
{
    size_t len = strlen(key);

    for (size_t i = 0; i < pairs->count; i++) {
        if (strncmp(pairs->items[i], key, len) == 0 && pairs->items[i][len] == '=')
            return true;
    }
    return false;
}

/* Adds everything that base.json and runtime.json describe. */
static int add_curated(
    const struct root_build *build, struct root_entries *entries, struct err *err)
{
    CLEANUP(base_def_done) struct base_def base = {0};
    int r = read_base(build, &base, err);

    if (r < 0 || (r = fill_bin(build, build->tree_fd, &base, err)) < 0)
        return r;
    if ((r = add_pairs(build->tree_fd, &build->spec->links, root_tree_link, err)) < 0)
        return r;
    for (size_t i = 0; i < base.dirs.count; i++) {
        if (has_pair(&build->spec->links, base.dirs.items[i]))
            continue;
        if ((r = root_tree_dir(build->tree_fd, base.dirs.items[i])) < 0)
            return fail(err, r, base.dirs.items[i]);
    }
    if ((r = add_pairs(build->tree_fd, &base.links, root_tree_link, err)) < 0 ||
        (r = add_pairs(build->tree_fd, &base.files, root_tree_file, err)) < 0 ||
        (r = add_loaders(build, entries, &base.loaders, err)) < 0 ||
        (r = bind_paths(build, &base.root, entries, err)) < 0)
        return r;
    return bind_paths(build, build->spec, entries, err);
}

/* Adds what lies over a whole root: the made-up files of /etc, and the files of Hermes. Parents
 * become real directories, so no layer below can turn /etc or /usr/lib/hermes into a link. */
static int add_skeleton(
    const struct root_build *build, struct root_entries *entries, struct err *err)
{
    static const char *const ours[] = {"/etc", "/usr/lib/hermes", "/var"};
    CLEANUP(base_def_done) struct base_def base = {0};
    CLEANUP(strv_done) struct strv files = {0};
    int r = read_base(build, &base, err);

    for (size_t i = 0; r == 0 && i < base.files.count; i++) {
        const char *file = base.files.items[i];
        bool is_needed =
            str_has_prefix(file, "/etc/resolv.conf=") || str_has_prefix(file, "/etc/hosts=");
        if (is_needed || !build->spec->keeps_etc)
            strv_add(&files, file);
    }

    for (size_t i = 0; r == 0 && i < sizeof(ours) / sizeof(ours[0]); i++) {
        r = root_tree_dir(build->tree_fd, ours[i]);
        r = r < 0 ? fail(err, r, ours[i]) : 0;
    }
    if (r < 0 ||
        (r = add_pairs(build->tree_fd, &build->spec->links, root_tree_link, err)) < 0 ||
        (r = add_pairs(build->tree_fd, &files, root_tree_file, err)) < 0)
        return r;
    return bind_paths(build, build->spec, entries, err);
}

/* Adds the host's whole tree instead of a curated one, for the controls of the selftest. */
static int add_host(
    const struct root_build *build, struct root_entries *entries, struct err *err)
{
    static const char *const ours[] = {".", "..", "proc", "sys", "dev", "box", "tmp", "mnt"};
    cleanup_closedir DIR *dir = opendir("/");
    int r = 0;

    for (struct dirent *e; r == 0 && dir && (e = readdir(dir)) && entries->count < 64;) {
        cleanup_free char *path = xasprintf("/%s", e->d_name);
        char target[SPAWN_PATH_MAX];
        struct stat st;
        bool skip = false;

        for (size_t i = 0; i < sizeof(ours) / sizeof(ours[0]); i++)
            skip = skip || str_eq(e->d_name, ours[i]);
        if (skip || lstat(path, &st) < 0)
            continue;
        if (S_ISDIR(st.st_mode)) {
            r = add_bind(build, entries, path, path, true, err);
            entries->items[entries->count - 1].flags |= ENTRY_OPTIONAL;
        } else if (S_ISLNK(st.st_mode)) {
            ssize_t n = readlink(path, target, sizeof(target) - 1);
            target[n > 0 ? n : 0] = '\0';
            r = root_tree_link(build->tree_fd, path, target);
            r = r < 0 ? fail(err, r, path) : 0;
        }
    }
    return r;
}

int root_build(const struct root_build *build, struct root_entries *ret, struct err *err)
{
    cleanup_free char *tree = xasprintf("%s/top/" ROOT_TREE, build->dir_path);
    CLEANUP(root_entries_done) struct root_entries entries;

    root_entries_init(&entries);
    int r = root_entry_add(&entries, ENTRY_TREE, "", tree);
    if (r == 0)
        r = root_tree_start(build->tree_fd, &entries);
    if (r < 0)
        return fail(err, r, tree);
    r = build->spec->whole_host    ? add_host(build, &entries, err)
        : build->spec->is_skeleton ? add_skeleton(build, &entries, err)
                                   : add_curated(build, &entries, err);
    if (r == 0 && build->spec->has_seed && (r = root_tree_dir(build->tree_fd, SEED_IN_BOX)) < 0)
        r = fail(err, r, SEED_IN_BOX);
    if (r < 0)
        return r;
    *ret = entries;
    root_entries_init(&entries);
    return 0;
}
