/* SPDX-License-Identifier: Apache-2.0 */

/* The collector: after the payload and all it left are dead, a process with the payload's id
 * walks /box and sends back the files whose names match the globs of the job. Links, fifos and
 * devices are named and never opened; depth, count and bytes are capped. Its reader trusts none
 * of it. */

#include "spawn/inside.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/str.h"
#include "spawn/job_read.h"
#include "spawn/landlock.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_DEPTH = 32, MAX_SEEN = 100000, CHUNK = 65536 };

struct walk {
    int out_fd;
    const char *globs[JOB_MAX_GLOBS];
    uint32_t glob_count;
    uint32_t files_left;
    uint64_t bytes_left;
    uint32_t seen;
    bool cut;
};

static int send_record(struct walk *w, struct collect_record record, const char *name)
{
    record.name_len = (uint32_t)strlen(name);
    int r = fs_write_all(w->out_fd, &record, sizeof(record));
    return r < 0 ? r : fs_write_all(w->out_fd, name, record.name_len);
}

static bool matches(const struct walk *w, const char *path)
{
    for (uint32_t i = 0; i < w->glob_count; i++) {
        if (str_glob_match(w->globs[i], path))
            return true;
    }
    return false;
}

/* Sends exactly `size` bytes; the box is empty, so the file does not change any more. */
static int send_content(struct walk *w, int fd, uint64_t size)
{
    static char chunk[CHUNK];
    while (size > 0) {
        ssize_t n = read(fd, chunk, size < CHUNK ? size : CHUNK);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return -EIO;
        int r = fs_write_all(w->out_fd, chunk, (size_t)n);
        if (r < 0)
            return r;
        size -= (uint64_t)n;
    }
    return 0;
}

static int send_file(struct walk *w, int dir_fd, const char *name, const char *path)
{
    struct stat st;
    if (w->files_left == 0) {
        w->cut = true;
        return 0;
    }
    w->files_left--;
    if (fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return send_record(
            w, (struct collect_record){.kind = COLLECT_UNREADABLE, .error = -errno}, path);
    if (!S_ISREG(st.st_mode))
        return send_record(w, (struct collect_record){.kind = COLLECT_NOT_REGULAR}, path);
    uint64_t size = (uint64_t)st.st_size;
    if (size > w->bytes_left)
        return send_record(
            w, (struct collect_record){.kind = COLLECT_TOO_LARGE, .size = size}, path);
    cleanup_close int fd =
        openat(dir_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0)
        return send_record(
            w, (struct collect_record){.kind = COLLECT_UNREADABLE, .error = -errno}, path);
    w->bytes_left -= size;
    int r = send_record(w,
        (struct collect_record){
            .kind = COLLECT_FILE, .size = size, .executable = (st.st_mode & 0100) != 0},
        path);
    return r < 0 ? r : send_content(w, fd, size);
}

/* Depth first, with an explicit stack of open directories. */
static int walk_box(struct walk *w)
{
    static char path[4096];
    DIR *stack[MAX_DEPTH];
    size_t lengths[MAX_DEPTH];
    int depth = 0;
    int r = 0;
    stack[0] = opendir("/box");
    if (!stack[0])
        return -errno;
    lengths[0] = 0;
    while (depth >= 0 && r == 0) {
        struct dirent *e = readdir(stack[depth]);
        if (!e || w->seen >= MAX_SEEN) {
            w->cut = w->cut || e;
            (void)closedir(stack[depth--]);
            continue;
        }
        if (str_eq(e->d_name, ".") || str_eq(e->d_name, ".."))
            continue;
        w->seen++;
        size_t base = lengths[depth];
        int n = snprintf(path + base, sizeof(path) - base, "%s%s", base ? "/" : "", e->d_name);
        if (n < 0 || (size_t)n >= sizeof(path) - base) {
            w->cut = true;
            continue;
        }
        if (e->d_type == DT_DIR) {
            int fd = depth + 1 < MAX_DEPTH
                         ? openat(dirfd(stack[depth]), e->d_name,
                               O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
                         : -1;
            DIR *dir = fd < 0 ? NULL : fdopendir(fd);
            if (!dir) {
                w->cut = true;
                continue;
            }
            stack[++depth] = dir;
            lengths[depth] = base + (size_t)n;
        } else if (matches(w, path)) {
            r = send_file(w, dirfd(stack[depth]), e->d_name, path);
        }
    }
    return r;
}

void collect_run(const struct inside *in)
{
    static struct walk w;
    struct job job;
    if (drop_to_payload(in) < 0 || landlock_restrict(in->landlock_abi, NULL, 0) < 0 ||
        job_open(in->job_fd, &job) < 0)
        _exit(1);
    w.out_fd = in->collect_fd;
    w.glob_count = job.head.globc;
    w.files_left = job.head.collect_max_files;
    w.bytes_left = job.head.collect_max_bytes;
    size_t at = 0;
    for (uint32_t i = 0; i < job.head.argc + job.head.envc; i++)
        (void)job_string(&job, &at);
    for (uint32_t i = 0; i < w.glob_count; i++)
        w.globs[i] = job_string(&job, &at);
    int r = walk_box(&w);
    (void)send_record(&w,
        (struct collect_record){.kind = COLLECT_END,
            .error = r < 0   ? r
                     : w.cut ? -E2BIG
                             : 0},
        "");
    _exit(0);
}
