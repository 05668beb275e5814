/* SPDX-License-Identifier: Apache-2.0 */

/* See seed_build.h. The process that makes a seed holds a lock on the directory `incoming`.
 * The next build removes what an interrupted one left there. */

#include "image/seed_build.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/os/fs.h"
#include "base/str.h"
#include "lang/seed.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    ENTRIES_MAX = 100000, /* files and directories of a seed */
    DEPTH_MAX = 16,       /* directories in each other */
    QUOTE = 400,          /* bytes of the recipe's last output in an error */
};

struct sum {
    uint64_t bytes;
    uint64_t entries;
};

static int check_dir(int dir_fd, unsigned depth, const struct seed_def *def, struct sum *sum);

/* Counts one file or directory and makes it readable for boxes. Anything else, or a file with a
 * second name, is refused. */
static int check_entry(
    int dir_fd, const char *name, unsigned depth, const struct seed_def *def, struct sum *sum)
{
    cleanup_close int fd = openat(dir_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0)
        return -errno;
    bool is_dir = S_ISDIR(st.st_mode);
    if (!is_dir && (!S_ISREG(st.st_mode) || st.st_nlink != 1))
        return -EBADMSG;
    sum->bytes += (uint64_t)st.st_size;
    if (++sum->entries > ENTRIES_MAX || sum->bytes > (uint64_t)def->max_mb << 20)
        return -EFBIG;
    if (fchmod(fd, is_dir || st.st_mode & S_IXUSR ? 0755 : 0644) < 0)
        return -errno;
    return is_dir ? check_dir(fd, depth + 1, def, sum) : 0;
}

static int check_dir(int dir_fd, unsigned depth, const struct seed_def *def, struct sum *sum)
{
    cleanup_close int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    cleanup_closedir DIR *d = fd >= 0 && depth <= DEPTH_MAX ? fdopendir(fd) : NULL;
    if (!d)
        return fd < 0 ? -errno : -EFBIG;
    (void)take_fd(&fd);
    int r = 0;
    for (struct dirent *e; r == 0 && (e = readdir(d));) {
        if (!str_eq(e->d_name, ".") && !str_eq(e->d_name, ".."))
            r = check_entry(dirfd(d), e->d_name, depth, def, sum);
    }
    return r;
}

static int check_output(int incoming, const struct runtime *rt, struct err *err)
{
    const struct seed_def *def = &rt->compile.seed;
    struct sum sum = {0};
    cleanup_close int tree =
        openat(incoming, "tree", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int r = tree < 0 ? -errno : check_dir(tree, 0, def, &sum);
    if (r == 0 && !sum.entries)
        r = -ENOENT;
    if (r == 0 && (fchmod(tree, 0755) < 0 || syncfs(tree) < 0))
        r = -errno;
    if (r == -EFBIG)
        return err_set(err, ERR_BUILD_FAILED, EFBIG,
            "the seed of %s has more than max_mb, %u MiB, or %d files", rt->name, def->max_mb,
            ENTRIES_MAX);
    return r < 0 ? err_set(err, ERR_BUILD_FAILED, -r,
                       "the recipe of the seed of %s made something else than files: %s",
                       rt->name, strerror(-r))
                 : 0;
}

static int blame(const struct runtime *rt, const struct stage_result *run, struct err *err)
{
    size_t len = run->err.len < QUOTE ? run->err.len : QUOTE;
    if (run->status == RUN_CANCELLED)
        return err_set(err, ERR_CONFLICT, ECANCELED, "making the seed was cancelled");
    return err_set(err, ERR_BUILD_FAILED, EBADMSG,
        "the recipe of the seed of %s failed: %s%s%.*s", rt->name,
        run->message[0] ? run->message : run_status_name(run->status), len ? ": " : "",
        (int)len, len ? run->err.data + run->err.len - len : "");
}

/* The box has the variables of the compile stage. */
static int run_recipe(const struct seed_builder *b, const struct runtime *rt, struct err *err)
{
    CLEANUP(run_spec_done) struct run_spec spec;
    CLEANUP(run_result_done) struct run_result result;
    CLEANUP(run_plan_done) struct run_plan plan = {0};
    const struct run_watch watch = {.cancel_fd = b->cancel_fd};
    run_spec_init(&spec);
    run_result_init(&result, 64 << 10);
    spec.runtime = rt;
    spec.is_internal = true;
    spec.owner = b->owner;
    spec.limits = seed_limits(rt);
    spec.compile_limits = spec.limits; /* there is no such stage, but they are checked */
    spec.shell = xasprintf("set -eu\ncd /mnt/seed/tree\n%s\n", rt->compile.seed.recipe);
    spec.mount_count = 1;
    spec.mounts[0] = (struct run_mount){
        .source = engine_seed_source(b->engine), .writable = true, .path = "/mnt/seed"};
    int r = run_plan_make(&spec, &spec.limits, &plan, err);
    if (r == 0)
        r = engine_run(b->engine, &plan, &watch, &result, err);
    return r < 0 ? r : result.run.status != RUN_OK ? blame(rt, &result.run, err) : 0;
}

/* In the box, the owner of `incoming` is the recipe's user. */
static int make_tree(int incoming)
{
    struct stat st;
    if (fstat(incoming, &st) < 0 || mkdirat(incoming, "tree", 0755) < 0)
        return -errno;
    if (geteuid() == st.st_uid)
        return 0;
    return fchownat(incoming, "tree", st.st_uid, st.st_gid, AT_SYMLINK_NOFOLLOW) < 0 ? -errno
                                                                                     : 0;
}

static int open_incoming(const struct seed_builder *b, struct err *err)
{
    cleanup_free char *path = xasprintf("%s/" SEED_INCOMING, b->dir);
    cleanup_close int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK)
        return err_set(err, ERR_BUSY, EBUSY, "another Hermes makes a seed in %s", b->dir);
    int r = fd < 0 ? -errno : fs_remove_tree(fd, "tree");
    if (r == -ENOENT && fd >= 0)
        r = 0;
    if (r == 0)
        r = make_tree(fd);
    return r < 0 ? err_set(err, err_code_of(-r), -r, "%s: %s", path, strerror(-r))
                 : take_fd(&fd);
}

/* Another process may have made the same seed meanwhile. */
static int give_name(int incoming, const char *place, struct err *err)
{
    cleanup_free char *path = xasprintf("%s/" SEED_READY, place);
    if (renameat(incoming, "tree", AT_FDCWD, path) < 0 && !seed_is_ready(place))
        return err_set(err, err_code_of(errno), errno, "%s: %s", path, strerror(errno));
    return 0;
}

int seed_build(const struct seed_builder *b, const struct runtime *rt, struct err *err)
{
    const char *place = engine_seed_place(b->engine, rt);
    if (!place)
        return err_set(err, ERR_UNAVAILABLE, ENOENT,
            "there is no place for the seed of %s in %s", rt->name, b->dir);
    if (seed_is_ready(place))
        return 0;
    cleanup_close int incoming = open_incoming(b, err);
    if (incoming < 0)
        return incoming;
    int r = run_recipe(b, rt, err);
    if (r == 0)
        r = check_output(incoming, rt, err);
    if (r == 0)
        r = give_name(incoming, place, err);
    (void)fs_remove_tree(incoming, "tree");
    return r;
}
