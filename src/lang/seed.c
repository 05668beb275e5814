/* SPDX-License-Identifier: Apache-2.0 */

/* See seed.h. The directory belongs to root and only the places and `incoming` to the server:
 * root binds the places by their paths, so the server must not be able to replace one. */

#include "lang/seed.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/id.h"
#include "base/os/fs.h"
#include "base/str.h"
#include "lang/rootfs_skeleton.h"
#include "lang/state_dir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <nettle/sha2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

enum {
    KEY_BYTES = 16,          /* of the hash in the name of a place */
    SEED_FORMAT = 1,         /* increase when seeds are made or used in another way */
    SEED_MAX_MB = 64 << 10,  /* largest max_mb */
    UNUSED_S = 7 * 24 * 3600 /* a place that was not opened for this long is removed */
};

#define TRASH ".old-seed-" /* begins the name of a place that is being removed */

void seed_place_done(struct seed_place *place)
{
    if (place->path != NULL)
        close_fd(&place->lock_fd);
    free(place->path);
    *place = (struct seed_place){0};
}

void seed_def_done(struct seed_def *def)
{
    free(def->recipe);
    strv_done(&def->env);
}

int seed_def_read(struct json_at at, struct seed_def *ret)
{
    static const char *const keys[] = {"recipe", "env", "in_run", "max_mb", "limits", NULL};
    CLEANUP(strv_done) struct strv lines = {0};
    char name[96];
    struct json_at def;
    int r = json_at_object(at, "seed", name, &def);

    if (r < 0 || def.object == NULL)
        return r;
    if ((r = json_at_keys(def, keys)) < 0 || (r = json_at_strv(def, "recipe", &lines)) < 0 ||
        (r = json_at_map(def, "env", &ret->env)) < 0 ||
        (r = json_at_count(def, "max_mb", SEED_MAX_MB, &ret->max_mb)) < 0 ||
        (r = json_at_limits(def, "limits", &ret->limits)) < 0)
        return r;
    if (lines.count == 0 || ret->max_mb == 0)
        return json_file_problem(at.file, name, "needs a recipe and max_mb");
    ret->in_run = json_is_true(json_object_get(def.object, "in_run"));
    ret->recipe = str_join((const char *const *)lines.items, lines.count, "\n");
    return 0;
}

struct run_limits seed_limits(const struct runtime *rt)
{
    struct run_limits limits = rt->compile.seed.limits;
    limits_fill(&limits, &rt->compile_limits);
    return limits;
}

static void add(struct sha256_ctx *ctx, const void *data, size_t size)
{
    sha256_update(ctx, size, data);
}

static void add_text(struct sha256_ctx *ctx, const char *text)
{
    add(ctx, text, strlen(text) + 1);
}

/* Writes NAME-KEY. */
static void name_place(
    const struct runtime *rt, const struct root_entries *compile, char *ret, size_t ret_size)
{
    const char *program = rt->compile_root.execs.items[0];
    char compiler[2 * SPAWN_PATH_MAX];
    uint8_t digest[SHA256_DIGEST_SIZE];
    struct sha256_ctx ctx;
    struct utsname machine = {0};
    struct stat st = {0};

    /* In the tree it is a link or a copy, so the file that it was made from is examined. */
    root_host_path(compile, program, compiler, sizeof(compiler));
    if (str_has_prefix(compiler, compile->items[0].source))
        (void)snprintf(compiler, sizeof(compiler), "%s", program);
    if (stat(compiler, &st) < 0)
        st = (struct stat){0};
    (void)uname(&machine);
    const uint64_t facts[] = {SEED_FORMAT, st.st_dev, st.st_ino, (uint64_t)st.st_size,
        (uint64_t)st.st_mtim.tv_sec, (uint64_t)st.st_mtim.tv_nsec};
    sha256_init(&ctx);
    add(&ctx, facts, sizeof(facts));
    add_text(&ctx, machine.machine);
    add_text(&ctx, compile->facts);
    add_text(&ctx, compiler);
    add(&ctx, rt->text != NULL ? rt->text : "", rt->text_len); /* recipe, flags, variables */
    sha256_digest(&ctx, sizeof(digest), digest);
    int len = snprintf(ret, ret_size, "%.48s-", rt->name);
    for (size_t i = 0; i < KEY_BYTES; i++)
        len += snprintf(ret + len, ret_size - (size_t)len, "%02x", digest[i]);
}

/* Makes a directory for a user and opens it. A user other than root keeps the directory
 * private. Changes nothing that is right already: root may lack CAP_FOWNER. */
static int make_dir(int dir_fd, const char *name, uid_t uid, gid_t gid)
{
    struct stat st;

    if (mkdirat(dir_fd, name, 0755) < 0 && errno != EEXIST)
        return -errno;
    cleanup_close int fd =
        openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0 || ((st.st_mode & 0777) != 0755 && fchmod(fd, 0755) < 0))
        return -errno;
    if (geteuid() == 0 && uid != SEED_KEEP_OWNER && (st.st_uid != uid || st.st_gid != gid) &&
        fchown(fd, uid, gid) < 0)
        return -errno;
    return take_fd(&fd);
}

/* Removes a place that was not opened for long, and the rest of an interrupted removal. */
static void remove_unused(int dir_fd, const char *name)
{
    cleanup_close int fd =
        openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct stat st;
    char trash[ID_MAX + 8];

    if (fd < 0 || fstat(fd, &st) < 0 || flock(fd, LOCK_EX | LOCK_NB) < 0 ||
        (name[0] != '.' && time(NULL) - st.st_mtim.tv_sec < UNUSED_S))
        return;
    id_make(TRASH, trash);
    if (renameat(dir_fd, name, dir_fd, trash) == 0)
        (void)fs_remove_tree(dir_fd, trash);
}

/* Whether a name is NAME-KEY, or that of an interrupted removal. The operator may have named a
 * directory that has other things, which stay. */
static bool is_ours(const char *name)
{
    const char *key = strrchr(name, '-');

    return str_has_prefix(name, TRASH) ||
           (name[0] != '.' && key != NULL && strlen(key + 1) == 2 * (size_t)KEY_BYTES &&
               strspn(key + 1, "0123456789abcdef") == 2 * (size_t)KEY_BYTES);
}

static void remove_all_unused(int dir_fd)
{
    cleanup_close int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    cleanup_closedir DIR *d = fd >= 0 ? fdopendir(fd) : NULL;

    if (d == NULL)
        return;
    (void)take_fd(&fd);
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        if (is_ours(e->d_name))
            remove_unused(dir_fd, e->d_name);
    }
}

int seeds_open(const char *named, uid_t uid, gid_t gid, char **ret_path, struct err *err)
{
    cleanup_free char *path = NULL;
    cleanup_close int fd = seed_dir_open(named, &path, err);

    if (fd < 0)
        return fd;
    /* The server's user goes through it. */
    int incoming =
        geteuid() == 0 && fchmod(fd, 0711) < 0 ? -errno : make_dir(fd, SEED_INCOMING, uid, gid);
    if (incoming < 0)
        return err_set(err, ERR_UNAVAILABLE, -incoming, "%s/" SEED_INCOMING ": %s", path,
            strerror(-incoming));
    (void)close(incoming);
    remove_all_unused(fd);
    *ret_path = take_ptr(path);
    return 0;
}

/* Opens and locks a place. A cleaner may rename it between the two steps; then the name no
 * longer leads to it, and the result is -ENOENT. */
static int lock_place(int dir_fd, const char *name, uid_t uid, gid_t gid)
{
    cleanup_close int fd = make_dir(dir_fd, name, uid, gid);
    struct stat by_fd, by_name;

    if (fd < 0)
        return fd;
    if (flock(fd, LOCK_SH) < 0 || fstat(fd, &by_fd) < 0 ||
        fstatat(dir_fd, name, &by_name, AT_SYMLINK_NOFOLLOW) < 0)
        return -errno;
    (void)futimens(fd, NULL); /* marks the place as used now */
    return by_fd.st_ino == by_name.st_ino ? take_fd(&fd) : -ENOENT;
}

int seed_place_open(const struct runtime *rt, const struct root_entries *compile,
    const char *named, struct seed_place *ret)
{
    cleanup_free char *path = NULL;
    char name[96];
    struct err ignored = {0};
    struct stat owner = {.st_uid = geteuid(), .st_gid = getegid()};
    cleanup_close int dir_fd = seed_dir_open(named, &path, &ignored);

    if (dir_fd < 0)
        return dir_fd;
    if (fstatat(dir_fd, SEED_INCOMING, &owner, AT_SYMLINK_NOFOLLOW) < 0)
        owner = (struct stat){.st_uid = geteuid(), .st_gid = getegid()};
    name_place(rt, compile, name, sizeof(name));
    int fd = lock_place(dir_fd, name, owner.st_uid, owner.st_gid);
    if (fd == -ENOENT)
        fd = lock_place(dir_fd, name, owner.st_uid, owner.st_gid);
    if (fd < 0)
        return fd;
    *ret = (struct seed_place){.path = xasprintf("%s/%s", path, name), .lock_fd = fd};
    return 0;
}

int seed_place_add(const struct seed_place *place, struct root_entries *to)
{
    return root_entry_add(to, ENTRY_BIND, SEED_IN_BOX, place->path);
}

const char *seed_place_of(const struct root_entries *root)
{
    for (size_t i = 0; i < root->count; i++) {
        if (root->items[i].kind == ENTRY_BIND && str_eq(root->items[i].path, SEED_IN_BOX))
            return root->items[i].source;
    }
    return NULL;
}

bool seed_is_ready(const char *place)
{
    cleanup_free char *path = xasprintf("%s/" SEED_READY, place);
    return access(path, R_OK | X_OK) == 0;
}
