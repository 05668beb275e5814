/* SPDX-License-Identifier: Apache-2.0 */

/* The collector: once the payload and all its processes are dead, a process with the payload's
 * id walks /box and sends back the files whose names match the globs of the package. Links,
 * fifos and devices are named and never opened; depth, count and bytes are capped. The reader
 * trusts none of it. */

#include "box/inside.h"

#include "base/cleanup.h"
#include "base/os/fs.h"
#include "base/str.h"
#include "box/landlock.h"
#include "box/package_read.h"
#include "box/walk.h"

#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* MAX_SEEN: entries of /box that are looked at. CHUNK: bytes per read. */
enum { MAX_SEEN = 100000, CHUNK = 65536 };

struct collection {
    int out_fd;
    const char *globs[PACKAGE_MAX_GLOBS];
    uint32_t glob_count;
    uint32_t files_left;
    uint64_t bytes_left;
    bool cut;
};

static int send_record(struct collection *c, struct collect_record record, const char *name)
{
    record.name_len = (uint32_t)strlen(name);
    int r = fs_write_all(c->out_fd, &record, sizeof(record));
    return r < 0 ? r : fs_write_all(c->out_fd, name, record.name_len);
}

static bool matches(const struct collection *c, const char *path)
{
    for (uint32_t i = 0; i < c->glob_count; i++) {
        if (str_glob_match(c->globs[i], path))
            return true;
    }
    return false;
}

/* Sends exactly `size` bytes; the box is empty, so the file does not change any more. */
static int send_content(struct collection *c, int fd, uint64_t size)
{
    static char chunk[CHUNK];
    while (size > 0) {
        ssize_t n = read(fd, chunk, size < CHUNK ? size : CHUNK);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return -EIO;
        int r = fs_write_all(c->out_fd, chunk, (size_t)n);
        if (r < 0)
            return r;
        size -= (uint64_t)n;
    }
    return 0;
}

static int send_file(struct collection *c, int dir_fd, const char *name, const char *path)
{
    struct stat st;
    if (c->files_left == 0) {
        c->cut = true;
        return 0;
    }
    c->files_left--;
    if (fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return send_record(
            c, (struct collect_record){.kind = COLLECT_UNREADABLE, .error = -errno}, path);
    if (!S_ISREG(st.st_mode))
        return send_record(c, (struct collect_record){.kind = COLLECT_NOT_REGULAR}, path);
    uint64_t size = (uint64_t)st.st_size;
    if (size > c->bytes_left)
        return send_record(
            c, (struct collect_record){.kind = COLLECT_TOO_LARGE, .size = size}, path);
    cleanup_close int fd =
        openat(dir_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0)
        return send_record(
            c, (struct collect_record){.kind = COLLECT_UNREADABLE, .error = -errno}, path);
    c->bytes_left -= size;
    int r = send_record(c,
        (struct collect_record){
            .kind = COLLECT_FILE, .size = size, .executable = (st.st_mode & 0100) != 0},
        path);
    return r < 0 ? r : send_content(c, fd, size);
}

static int collect_entry(struct walk *walk, int dir_fd, const char *name, unsigned char type)
{
    struct collection *c = walk->context;
    return type != DT_DIR && matches(c, walk->path) ? send_file(c, dir_fd, name, walk->path)
                                                    : 0;
}

static int walk_box(struct collection *c)
{
    static struct walk walk = {.entry = collect_entry, .max_entries = MAX_SEEN};
    int fd = open("/box", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    walk.context = c;
    int r = walk_tree(&walk, fd);
    c->cut = c->cut || walk.cut;
    return r;
}

void collect_run(const struct inside *in)
{
    static struct collection c;
    struct package package;
    if (drop_to_payload(in) < 0 || landlock_restrict(in->landlock_abi, NULL, 0) < 0 ||
        package_open(in->package_fd, &package) < 0)
        _exit(1);
    c.out_fd = in->collect_fd;
    c.glob_count = package.head.globc;
    c.files_left = package.head.collect_max_files;
    c.bytes_left = package.head.collect_max_bytes;
    size_t at = 0;
    for (uint32_t i = 0; i < package.head.argc + package.head.envc; i++)
        (void)package_string(&package, &at);
    for (uint32_t i = 0; i < c.glob_count; i++)
        c.globs[i] = package_string(&package, &at);
    int r = walk_box(&c);
    (void)send_record(&c,
        (struct collect_record){.kind = COLLECT_END,
            .error = r < 0   ? r
                     : c.cut ? -E2BIG
                             : 0},
        "");
    _exit(0);
}
