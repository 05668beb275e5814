/* SPDX-License-Identifier: Apache-2.0 */

/* See cache.h. Entries appear by rename and never change. So readers need no lock, and a writer
 * that is killed leaves at most a file in tmp/, which a later writer removes.
 *
 * The file `total` holds the bytes of all entries. It is mapped, and writers add to it
 * atomically before an entry appears, so it is normally not less than the truth. A scan of the
 * whole directory corrects it, and happens only when it exceeds the maximum. The scan removes
 * entries down to seven eighths of the maximum, so the next scan is an eighth of the maximum
 * away. */

#include "run/cache/cache.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/id.h"
#include "base/log.h"
#include "base/os/fs.h"
#include "base/str.h"
#include "lang/state_dir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Seconds after which a file in tmp/ is left over from a killed writer; hexadecimal digits of a
 * key. */
enum { STALE_TEMPORARY_S = 60, HEX_LEN = 2 * CACHE_KEY_SIZE };

struct cache {
    uint64_t max_bytes;
    int dir_fd;
    uint8_t secret[CACHE_SECRET_SIZE];
};

int cache_settings_parse(
    const char *mb, const char *shared, struct cache_settings *ret, struct err *err)
{
    uint64_t size_mb;
    bool is_shared = false;
    if (str_parse_u64(mb && mb[0] ? mb : CACHE_MB_DEFAULT, &size_mb) < 0 ||
        size_mb > CACHE_MB_MAX)
        return err_field(err, "HERMES_CACHE_MB",
            "HERMES_CACHE_MB is \"%.32s\"; it must be a number of MiB, 0 for no cache", mb);
    if (shared && shared[0] && str_parse_bool(shared, &is_shared) < 0)
        return err_field(err, "HERMES_CACHE_SHARED",
            "HERMES_CACHE_SHARED is \"%.32s\"; it must be true or false", shared);
    *ret = (struct cache_settings){.max_bytes = size_mb << 20, .shared = is_shared};
    return 0;
}

/* XX/KEY */
static void entry_path(const struct cache_key *key, char out[HEX_LEN + 4])
{
    int at = snprintf(out, 4, "%02x/", key->bytes[0]);
    str_hex(key->bytes, sizeof(key->bytes), out + at);
}

/* Only this user may have made the secret or may read it. */
static int read_secret(int state_fd, const char *name, uint8_t ret[CACHE_SECRET_SIZE])
{
    cleanup_close int fd =
        openat(state_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0)
        return -errno;
    if (!S_ISREG(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & 077) != 0)
        return -EPERM;
    return read(fd, ret, CACHE_SECRET_SIZE) == CACHE_SECRET_SIZE ? 0 : -EBADMSG;
}

/* Writes the secret under a temporary name, then links it to its own name. The first link
 * wins. */
static int make_secret(int state_fd, const char *name)
{
    uint8_t secret[CACHE_SECRET_SIZE];
    char temporary[ID_MAX];

    id_random(secret, sizeof(secret));
    id_make(".cache-", temporary);
    cleanup_close int fd =
        openat(state_fd, temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return -errno;
    int r = fs_write_all(fd, secret, sizeof(secret));
    if (r == 0 && (fsync(fd) < 0 ||
                      (linkat(state_fd, temporary, state_fd, name, 0) < 0 && errno != EEXIST)))
        r = -errno;
    (void)unlinkat(state_fd, temporary, 0);
    return r;
}

static int open_secret(int state_fd, const char *name, uint8_t ret[CACHE_SECRET_SIZE])
{
    int r = read_secret(state_fd, name, ret);

    if (r == -EBADMSG && unlinkat(state_fd, name, 0) == 0)
        r = -ENOENT;
    if (r == -ENOENT && (r = make_secret(state_fd, name)) == 0)
        r = read_secret(state_fd, name, ret);
    return r;
}

static int open_dir(int at_fd, const char *name)
{
    int fd = openat(at_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct stat st;

    if (fd < 0 && errno == ENOENT && (mkdirat(at_fd, name, 0700) == 0 || errno == EEXIST))
        fd = openat(at_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    if (fstat(fd, &st) < 0 || st.st_uid != geteuid() || (st.st_mode & 077) != 0) {
        (void)close(fd);
        return -EPERM;
    }
    return fd;
}

/* In a state directory that belongs to another user (root looking into the server's) the cache
 * has a name of its own, so that neither user can feed the other. */
int cache_open(struct cache **ret, const struct cache_settings *settings, const char *state_dir,
    struct err *err)
{
    cleanup_free char *state = NULL;
    cleanup_close int state_fd = state_dir_open(state_dir, &state, err);
    struct cache c = {.max_bytes = settings->max_bytes, .dir_fd = -EBADF};
    char names[2][32];
    struct stat st;

    if (state_fd < 0)
        return state_fd;
    bool own = fstat(state_fd, &st) == 0 && st.st_uid == geteuid();
    (void)snprintf(names[0], sizeof(names[0]), own ? "cache" : "cache-%u", geteuid());
    (void)snprintf(names[1], sizeof(names[1]), own ? "cache.key" : "cache-%u.key", geteuid());
    int r = open_secret(state_fd, names[1], c.secret);
    if (r < 0)
        return err_set(err, ERR_UNAVAILABLE, -r, "%s/%s: %s", state, names[1], strerror(-r));
    c.dir_fd = open_dir(state_fd, names[0]);
    if (c.dir_fd < 0)
        return err_set(
            err, ERR_UNAVAILABLE, -c.dir_fd, "%s/%s: %s", state, names[0], strerror(-c.dir_fd));
    *ret = xcalloc(1, sizeof(c));
    **ret = c;
    return 0;
}

void cache_close(struct cache *cache)
{
    if (cache == NULL)
        return;
    close_fd(&cache->dir_fd);
    explicit_bzero(cache->secret, sizeof(cache->secret));
    free(cache);
}

int cache_get(struct cache *cache, const struct cache_key *key, struct buf_purse *purse,
    struct cache_entry *ret)
{
    char path[HEX_LEN + 4];
    struct stat st;
    cleanup_buf struct buf bytes = {0};

    entry_path(key, path);
    cleanup_close int fd =
        openat(cache->dir_fd, path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return -ENOENT;
    int r = fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size > CACHE_ENTRY_MAX
                ? -EBADMSG
                : 0;
    if (r == 0 && purse && !purse->take(purse, 2 * (size_t)st.st_size))
        return -ENOENT;
    if (r == 0) {
        ssize_t n;

        buf_init(&bytes, CACHE_ENTRY_MAX + 1);
        while ((n = buf_read_fd(&bytes, fd, (size_t)st.st_size + 1)) > 0)
            ;
        if (n == -ENOMEM)
            return -ENOENT;
        r = n < 0 ? -EBADMSG : cache_entry_read(&bytes, key, cache->secret, ret);
    }
    if (r < 0) {
        log_event(LOG_WARN, "a damaged entry of the compile cache was removed", "entry", path,
            (char *)NULL);
        (void)fs_remove_tree(cache->dir_fd, path);
        return -ENOENT;
    }
    (void)futimens(fd, NULL);
    return 0;
}

/* The bytes of an entry on disk. */
static uint64_t weight(uint64_t size)
{
    return (size + 4095) / 4096 * 4096;
}

/* Maps the counter of bytes, which all users of the directory share. NULL when it is not
 * available. A new counter says "full", so the first writer counts the existing entries. */
static uint64_t *map_total(const struct cache *cache)
{
    cleanup_close int fd = openat(cache->dir_fd, "total", O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    const uint64_t full = cache->max_bytes;
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0 || st.st_size != sizeof(full)) {
        close_fd(&fd);
        fd = openat(cache->dir_fd, "total", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (fd < 0 || pwrite(fd, &full, sizeof(full), 0) != sizeof(full) ||
            ftruncate(fd, sizeof(full)) < 0)
            return NULL;
    }
    uint64_t *total = mmap(NULL, sizeof(full), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return total == MAP_FAILED ? NULL : total;
}

struct found {
    struct timespec used;
    uint64_t bytes;
    char path[HEX_LEN + 4];
};

struct scan {
    struct found *items;
    size_t count;
    size_t room;
    uint64_t bytes;
};

static void scan_dir(const struct cache *cache, const char *name, struct scan *scan)
{
    int fd = openat(cache->dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    cleanup_closedir DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    struct stat st;

    for (struct dirent *e; d != NULL && (e = readdir(d)) != NULL;) {
        if (strlen(e->d_name) != HEX_LEN ||
            fstatat(fd, e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
            continue;
        if (scan->count == scan->room) {
            scan->room = scan->room != 0 ? scan->room * 2 : 256;
            scan->items = xreallocarray(scan->items, scan->room, sizeof(*scan->items));
        }
        struct found *f = &scan->items[scan->count++];
        *f = (struct found){.used = st.st_mtim, .bytes = weight((uint64_t)st.st_size)};
        (void)snprintf(f->path, sizeof(f->path), "%.2s/%.64s", name, e->d_name);
        scan->bytes += f->bytes;
    }
}

static int by_use(const void *a, const void *b)
{
    const struct timespec *x = &((const struct found *)a)->used;
    const struct timespec *y = &((const struct found *)b)->used;

    if (x->tv_sec != y->tv_sec)
        return x->tv_sec < y->tv_sec ? -1 : 1;
    return (x->tv_nsec > y->tv_nsec) - (x->tv_nsec < y->tv_nsec);
}

/* Scans and removes old entries. Only one process does so at a time; others skip it, and the
 * next writer checks again. */
static void evict(const struct cache *cache, uint64_t *total)
{
    cleanup_close int lock = openat(cache->dir_fd, "lock", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    uint64_t before = __atomic_load_n(total, __ATOMIC_SEQ_CST);
    struct scan scan = {0};
    char name[4];

    if (lock < 0 || flock(lock, LOCK_EX | LOCK_NB) < 0 || before <= cache->max_bytes)
        return;
    for (unsigned i = 0; i < 256; i++) {
        (void)snprintf(name, sizeof(name), "%02x", i);
        scan_dir(cache, name, &scan);
    }
    if (scan.count > 0)
        qsort(scan.items, scan.count, sizeof(*scan.items), by_use);
    if (scan.bytes > cache->max_bytes / 8 * 7) {
        for (size_t i = 0; i < scan.count && scan.bytes > cache->max_bytes / 8 * 7; i++) {
            (void)unlinkat(cache->dir_fd, scan.items[i].path, 0);
            scan.bytes -= scan.items[i].bytes;
        }
    }
    free(scan.items);
    /* Bytes that others added during the scan stay counted. */
    (void)__atomic_add_fetch(total, scan.bytes - before, __ATOMIC_SEQ_CST);
}

/* Removes files that a killed writer left. */
static void clean_temporary(int tmp_fd)
{
    int fd = openat(tmp_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    cleanup_closedir DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    struct stat st;

    for (struct dirent *e; d != NULL && (e = readdir(d)) != NULL;) {
        if (e->d_name[0] != '.' && fstatat(fd, e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
            time(NULL) - st.st_mtim.tv_sec > STALE_TEMPORARY_S)
            (void)unlinkat(fd, e->d_name, 0);
    }
}

static int write_entry(struct cache *cache, const char *path, const struct buf *bytes)
{
    cleanup_close int tmp_fd = open_dir(cache->dir_fd, "tmp");
    char name[ID_MAX];

    if (tmp_fd < 0)
        return tmp_fd;
    clean_temporary(tmp_fd);
    id_make("new-", name);
    cleanup_close int fd = openat(tmp_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return -errno;
    int r = fs_write_all(fd, bytes->data, bytes->len);
    if (r == 0 && renameat(tmp_fd, name, cache->dir_fd, path) < 0) {
        char dir[4];

        (void)snprintf(dir, sizeof(dir), "%.2s", path);
        if (errno != ENOENT || (mkdirat(cache->dir_fd, dir, 0700) < 0 && errno != EEXIST) ||
            renameat(tmp_fd, name, cache->dir_fd, path) < 0)
            r = -errno;
    }
    if (r < 0)
        (void)unlinkat(tmp_fd, name, 0);
    return r;
}

void cache_put(struct cache *cache, const struct cache_key *key, struct buf_purse *purse,
    const struct cache_entry *entry)
{
    cleanup_buf struct buf bytes = {0};
    char path[HEX_LEN + 4];

    buf_init(&bytes, CACHE_ENTRY_MAX);
    bytes.purse = purse;
    if (cache_entry_write(entry, key, cache->secret, &bytes) < 0 ||
        weight(bytes.len) > cache->max_bytes / 2)
        return;
    uint64_t *total = map_total(cache);
    if (total == NULL)
        return;
    entry_path(key, path);
    uint64_t now = __atomic_add_fetch(total, weight(bytes.len), __ATOMIC_SEQ_CST);
    int r = write_entry(cache, path, &bytes);
    if (r < 0)
        log_event(LOG_WARN, "the compile cache cannot keep an entry", "reason", strerror(-r),
            (char *)NULL);
    if (now > cache->max_bytes)
        evict(cache, total);
    (void)munmap(total, sizeof(*total));
}
