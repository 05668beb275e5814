/* SPDX-License-Identifier: Apache-2.0 */

/* Keeps one directory per root tree under STATE_DIR/roots. Its name is NAME-KEY, where
 * KEY is a hash of everything the result depends on. So a directory never changes once it has
 * its name, and a new one appears when the host's packages change. A builder uses a temporary
 * name and renames; the loser of that race uses the winner's directory.
 *
 * A bind mount keeps a directory alive, but not the names in it. So a stale directory may only
 * be emptied when no box uses it. Users hold a shared flock on it. The cleaner tries an
 * exclusive one and leaves the directory alone when it fails. */

#include "lang/rootfs.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/id.h"
#include "base/os/fs.h"
#include "base/str.h"
#include "lang/hostpath.h"
#include "lang/rootfs_build.h"
#include "lang/rootfs_skeleton.h"
#include "lang/state_dir.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/capability.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    ROOT_FORMAT = 6,        /* increase when the output of root_build() changes */
    KEY_LEN = 32,           /* hexadecimal digits of a 128-bit hash */
    BASE_MAX = 64 * 1024,   /* bytes of base.json */
    STALE_TEMPORARY_S = 60, /* seconds; a build takes far less */
};

/* The file "entries" of a directory: this header, then the array in the spawner's format. */
struct entries_header {
    char magic[8];
    uint32_t format;
    uint32_t entry_size;
    uint64_t count;
};
static const char entries_magic[8] = "HROOT\n";

/* FNV-1a with 128 bits. The operator chooses the inputs, so only accidental collisions
 * matter. */
__extension__ typedef unsigned __int128 hash128;

static void hash_bytes(hash128 *hash, const void *data, size_t len)
{
    static const hash128 prime = ((hash128)1 << 88) + 0x13b;
    const unsigned char *p = data;

    for (size_t i = 0; i < len; i++) {
        *hash ^= p[i];
        *hash *= prime;
    }
}

static void hash_text(hash128 *hash, const char *text)
{
    hash_bytes(hash, text, strlen(text) + 1);
}

/* Hashes identity and last change of a path. For a pattern this is the directory above the
 * first wildcard, where a new match would appear. */
static void hash_path(hash128 *hash, const char *path)
{
    cleanup_free char *fixed = xstrdup(path);
    struct stat st;
    uint64_t facts[4] = {0};

    hash_text(hash, path);
    fixed[strcspn(fixed, "*?[")] = '\0';
    if (strlen(fixed) < strlen(path))
        *strrchr(fixed, '/') = '\0';
    if (stat(fixed, &st) == 0) {
        facts[0] = st.st_dev;
        facts[1] = st.st_ino;
        facts[2] = (uint64_t)st.st_mtim.tv_sec;
        facts[3] = (uint64_t)st.st_mtim.tv_nsec;
    }
    hash_bytes(hash, facts, sizeof(facts));
}

void root_entries_init(struct root_entries *entries)
{
    *entries = (struct root_entries){.lock_fd = -EBADF};
}

void root_entries_done(struct root_entries *entries)
{
    free(entries->items);
    close_fd(&entries->lock_fd);
    root_entries_init(entries);
}

/* The state of one call of root_describe(). */
struct root_job {
    const struct root_spec *spec;
    const char *name;
    struct root_walks *walks;
    char *state; /* path of the state directory */
    char *base_path;
    struct buf base;
    int roots_fd;
    char dir_name[96]; /* NAME-KEY */
    char facts[KEY_LEN + 1];
};

static void root_job_done(struct root_job *job)
{
    free(job->state);
    free(job->base_path);
    buf_done(&job->base);
    close_fd(&job->roots_fd);
}

static void write_hash(hash128 hash, char ret[KEY_LEN + 1])
{
    (void)snprintf(
        ret, KEY_LEN + 1, "%016" PRIx64 "%016" PRIx64, (uint64_t)(hash >> 64), (uint64_t)hash);
}

static void make_key(struct root_job *job)
{
    static const char *const sources[] = {"/usr/bin", "/usr/sbin", "/etc/alternatives",
        "/etc/ld.so.cache", "/etc/ssl/certs/ca-certificates.crt", "/usr/lib/locale",
        "/var/lib/dpkg/status"};
    const struct root_spec *spec = job->spec;
    hash128 hash = ((hash128)0x6c62272e07bb0142 << 64) | 0x62b821756295c58d;
    char facts[96];
    char key[KEY_LEN + 1];

    assert(job->state != NULL);
    (void)snprintf(facts, sizeof(facts),
        "format %d, entry %zu, user %u, host %d, seed %d, nodes %d, skeleton %d %d",
        ROOT_FORMAT, sizeof(struct spawn_entry), geteuid(), spec->whole_host, spec->has_seed,
        /* without CAP_MKNOD a tree with device nodes cannot be copied */
        prctl(PR_CAPBSET_READ, CAP_MKNOD), spec->is_skeleton, spec->keeps_etc);
    hash_text(&hash, facts);
    hash_bytes(&hash, job->base.data, job->base.len);
    for (size_t i = 0; i < sizeof(sources) / sizeof(sources[0]); i++)
        hash_path(&hash, sources[i]);
    for (size_t i = 0; i < spec->path_count; i++) {
        hash_path(&hash, spec->paths[i].host);
        hash_text(&hash, spec->paths[i].box != NULL ? spec->paths[i].box : "");
    }
    for (size_t i = 0; i < spec->tools.count; i++)
        hash_text(&hash, spec->tools.items[i]);
    for (size_t i = 0; i < spec->links.count; i++)
        hash_text(&hash, spec->links.items[i]);
    write_hash(hash, job->facts);
    hash_text(&hash, job->state);
    write_hash(hash, key);
    (void)snprintf(job->dir_name, sizeof(job->dir_name), "%.48s-%s", job->name, key);
}

static int open_job(struct root_job *job, const struct lang_dirs *dirs, struct err *err)
{
    cleanup_free char *main_dir = runtime_main_dir(dirs);

    if (main_dir == NULL)
        return err_set(err, ERR_UNAVAILABLE, ENOENT,
            "cannot find runtimes/base.json; set HERMES_RUNTIMES to its directory");
    job->base_path = xasprintf("%s/base.json", main_dir);
    buf_init(&job->base, BASE_MAX);
    int r = fs_read_file(AT_FDCWD, job->base_path, &job->base);
    if (r < 0)
        return err_set(err, ERR_UNAVAILABLE, -r, "%s: %s", job->base_path, strerror(-r));
    cleanup_close int state_fd = state_dir_open(dirs->state, &job->state, err);
    if (state_fd < 0)
        return state_fd;
    if (mkdirat(state_fd, "roots", 0700) < 0 && errno != EEXIST)
        return err_set(
            err, ERR_UNAVAILABLE, errno, "%s/roots: %s", job->state, strerror(errno));
    job->roots_fd = openat(state_fd, "roots", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (job->roots_fd < 0)
        return err_set(
            err, ERR_UNAVAILABLE, errno, "%s/roots: %s", job->state, strerror(errno));
    return 0;
}

/* Opens and locks a finished directory. A cleaner may rename it between the two steps; then the
 * name no longer leads to the locked directory, and the result is -ENOENT. */
static int lock_dir(const struct root_job *job)
{
    cleanup_close int fd =
        openat(job->roots_fd, job->dir_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct stat by_fd, by_name;

    if (fd < 0 || flock(fd, LOCK_SH) < 0)
        return -errno;
    if (fstat(fd, &by_fd) < 0 || fstatat(job->roots_fd, job->dir_name, &by_name, 0) < 0)
        return -errno;
    return by_fd.st_ino == by_name.st_ino ? take_fd(&fd) : -ENOENT;
}

/* Reads a finished directory. -ENOENT when it does not exist yet, -EBADMSG when its entries are
 * damaged. */
static int reuse(const struct root_job *job, struct root_entries *ret)
{
    CLEANUP(root_entries_done) struct root_entries entries;
    cleanup_buf struct buf text = {0};
    struct entries_header header;

    root_entries_init(&entries);
    entries.lock_fd = lock_dir(job);
    if (entries.lock_fd < 0)
        return entries.lock_fd;
    buf_init(&text, sizeof(header) + SPAWN_MAX_ENTRIES * sizeof(struct spawn_entry));
    int r = fs_read_file(entries.lock_fd, "entries", &text);
    if (r == -ENOENT || (r == 0 && text.len < sizeof(header)))
        return -EBADMSG;
    if (r < 0)
        return r;
    memcpy(&header, text.data, sizeof(header));
    if (memcmp(header.magic, entries_magic, sizeof(entries_magic)) != 0 ||
        header.format != ROOT_FORMAT || header.entry_size != sizeof(struct spawn_entry) ||
        header.count != (text.len - sizeof(header)) / sizeof(struct spawn_entry) ||
        header.count == 0)
        return -EBADMSG;
    entries.count = header.count;
    entries.items = xreallocarray(NULL, entries.count, sizeof(*entries.items));
    memcpy(entries.items, text.data + sizeof(header), entries.count * sizeof(*entries.items));
    memcpy(entries.key, job->dir_name, sizeof(entries.key));
    memcpy(entries.facts, job->facts, sizeof(entries.facts));
    *ret = entries;
    root_entries_init(&entries);
    return 0;
}

static int save_entries(int dir_fd, const struct root_entries *entries)
{
    struct entries_header header = {
        .format = ROOT_FORMAT,
        .entry_size = sizeof(struct spawn_entry),
        .count = entries->count,
    };
    cleanup_close int fd =
        openat(dir_fd, "entries", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444);

    if (fd < 0)
        return -errno;
    memcpy(header.magic, entries_magic, sizeof(entries_magic));
    int r = fs_write_all(fd, &header, sizeof(header));
    if (r == 0)
        r = fs_write_all(fd, entries->items, entries->count * sizeof(*entries->items));
    return r;
}

/* Removes a directory unless it is locked. Renames it first, so that no process can find it
 * half empty. */
static void remove_unused(int roots_fd, const char *name)
{
    cleanup_close int fd = openat(roots_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    char trash[ID_MAX + 8];

    if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) < 0)
        return;
    id_make(".old-", trash);
    if (renameat(roots_fd, name, roots_fd, trash) == 0)
        (void)fs_remove_tree(roots_fd, trash);
}

/* Names with a leading dot are temporary. After STALE_TEMPORARY_S they are left over from a
 * crash. */
static bool is_left_over(int roots_fd, const char *name)
{
    struct stat st;

    return name[0] == '.' && !str_eq(name, ".") && !str_eq(name, "..") &&
           fstatat(roots_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
           time(NULL) - st.st_mtim.tv_sec > STALE_TEMPORARY_S;
}

/* Removes directories of the same name with other keys, which are stale, and leftovers of
 * crashes. */
static void remove_stale(const struct root_job *job)
{
    cleanup_close int fd = openat(job->roots_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    cleanup_closedir DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    size_t name_len = strlen(job->dir_name) - KEY_LEN;
    struct dirent *entry;

    if (d == NULL)
        return;
    (void)take_fd(&fd);
    while ((entry = readdir(d)) != NULL) {
        const char *name = entry->d_name;
        bool same_name =
            strlen(name) == name_len + KEY_LEN && strncmp(name, job->dir_name, name_len) == 0;

        if ((same_name && strcmp(name, job->dir_name) != 0) ||
            is_left_over(job->roots_fd, name))
            remove_unused(job->roots_fd, name);
    }
}

/* Builds in the temporary directory `name`, then renames it to its final name. */
static int build_in(const struct root_job *job, const char *name, struct err *err)
{
    cleanup_close int fd =
        openat(job->roots_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    cleanup_free char *path = xasprintf("%s/roots/%s", job->state, job->dir_name);
    CLEANUP(root_entries_done) struct root_entries entries;

    root_entries_init(&entries);
    if (fd < 0 || flock(fd, LOCK_SH) < 0 || mkdirat(fd, "top", 0755) < 0 ||
        mkdirat(fd, "top/" ROOT_TREE, 0755) < 0)
        return err_set(err, ERR_INTERNAL, errno, "%s: %s", path, strerror(errno));
    cleanup_close int tree_fd =
        openat(fd, "top/" ROOT_TREE, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (tree_fd < 0)
        return err_set(err, ERR_INTERNAL, errno, "%s: %s", path, strerror(errno));
    struct root_build build = {
        .spec = job->spec,
        .base_path = job->base_path,
        .base_text = job->base.data,
        .base_len = job->base.len,
        .dir_path = path,
        .tree_fd = tree_fd,
        .walks = job->walks,
    };
    int r = root_build(&build, &entries, err);
    if (r < 0)
        return r;
    if ((r = save_entries(fd, &entries)) < 0)
        return err_set(err, ERR_INTERNAL, -r, "%s/entries: %s", path, strerror(-r));
    if (renameat(job->roots_fd, name, job->roots_fd, job->dir_name) < 0 && errno != EEXIST &&
        errno != ENOTEMPTY)
        return err_set(err, ERR_INTERNAL, errno, "%s: %s", path, strerror(errno));
    return 0;
}

static int build(const struct root_job *job, struct err *err)
{
    char name[ID_MAX + 8];

    id_make(".new-", name);
    /* The user of the box must be able to read the new files, whatever our umask is. */
    mode_t mask = umask(022);
    int r = mkdirat(job->roots_fd, name, 0755) < 0
                ? err_set(err, ERR_INTERNAL, errno, "%s/roots: %s", job->state, strerror(errno))
                : build_in(job, name, err);
    (void)umask(mask);
    /* After a lost race or an error the directory still has its temporary name. */
    (void)fs_remove_tree(job->roots_fd, name);
    if (r == 0)
        remove_stale(job);
    return r;
}

/* The programs of a root are not part of its directory. So all languages that need only the
 * base tree share one directory. */
static int add_execs(struct root_entries *entries, const struct strv *execs, struct err *err)
{
    int r = execs->count > SPAWN_MAX_EXECS ? -E2BIG : 0;

    for (size_t i = 0; r == 0 && i < execs->count; i++)
        r = root_entry_add(entries, ENTRY_EXEC, execs->items[i], "");
    return r < 0 ? err_set(
                       err, ERR_INTERNAL, -r, "the programs of the root tree: %s", strerror(-r))
                 : 0;
}

int root_describe(const struct root_spec *spec, const char *name, const struct lang_dirs *dirs,
    struct root_walks *walks, struct root_entries *ret, struct err *err)
{
    bool is_base = spec->path_count == 0 && spec->tools.count == 0 && !spec->is_skeleton;
    const char *kind = spec->whole_host ? "host" : is_base ? "base" : name;
    CLEANUP(root_job_done)
    struct root_job job = {.spec = spec, .name = kind, .walks = walks, .roots_fd = -EBADF};
    int r = open_job(&job, dirs, err);

    if (r < 0)
        return r;
    make_key(&job);
    r = reuse(&job, ret);
    if (r == -EBADMSG || r == -ENOENT) {
        if (r == -EBADMSG)
            remove_unused(job.roots_fd, job.dir_name);
        if ((r = build(&job, err)) < 0)
            return err_wrap(err, r, "root tree %s in the state directory %s", name, job.state);
        r = reuse(&job, ret);
    }
    if (r < 0)
        return err_set(
            err, ERR_INTERNAL, -r, "%s/roots/%s: %s", job.state, job.dir_name, strerror(-r));
    if ((r = add_execs(ret, &spec->execs, err)) < 0)
        root_entries_done(ret);
    return r;
}

void root_host_path(
    const struct root_entries *root, const char *box_path, char *ret, size_t ret_size)
{
    size_t longest = 0;

    ret[0] = '\0';
    for (size_t i = 0; i < root->count; i++) {
        const struct spawn_entry *e = &root->items[i];
        size_t len = strlen(e->path);

        if (e->kind <= ENTRY_BIND && len >= longest && strncmp(box_path, e->path, len) == 0 &&
            (box_path[len] == '/' || box_path[len] == '\0')) {
            (void)snprintf(ret, ret_size, "%s%s", e->source, box_path + len);
            longest = len;
        }
    }
}
