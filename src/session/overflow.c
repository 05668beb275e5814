/* SPDX-License-Identifier: Apache-2.0 */

/* The whole of an output that is too long for the answer. It goes to a file of the server's
 * that has no name, and from there into the box: the caller fetches it, the code can read it,
 * and it counts against the session's own limits. */

#include "session/overflow.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/fs.h"
#include "base/id.h"
#include "service/service.h"
#include "session/files.h"
#include "session/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/vfs.h>
#include <unistd.h>

enum { CHUNK = 64 << 10, SPILL_MAX = 64 << 20, FREE_MIN = 1 << 30 };

void spill_init(struct spill *spill)
{
    *spill = (struct spill){.fd = -1};
}

void spill_done(struct spill *spill)
{
    close_fd(&spill->fd);
}

static int open_nameless(const char *dir)
{
    char id[ID_MAX];
    id_make("spill-", id);
    cleanup_free char *path = xasprintf("%s/%s", dir, id);
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd >= 0)
        (void)unlink(path);
    return fd;
}

/* The disk is there for more important things. */
static bool has_room(int fd)
{
    struct statfs fs;
    return fstatfs(fd, &fs) == 0 &&
           (uint64_t)fs.f_bavail * (uint64_t)fs.f_bsize >= (uint64_t)FREE_MIN;
}

/* Begins with what was captured so far. */
static int begin(struct spill *spill, const struct capture *c, const char *dir)
{
    size_t len;
    cleanup_free char *text = capture_text(c, &len);
    spill->fd = open_nameless(dir);
    spill->size = len;
    if (spill->fd < 0)
        return -errno;
    return has_room(spill->fd) ? fs_write_all(spill->fd, text, len) : -ENOSPC;
}

void spill_add(struct spill *spill, struct session *s, const struct capture *c,
    const char *data, size_t len)
{
    int r = 0;
    if (spill->has_failed || (spill->fd < 0 && c->total + len <= c->max))
        return;
    if (spill->fd < 0)
        r = begin(spill, c, s->all->service->config.state_dir);
    spill->size += len;
    if (r == 0)
        r = spill->size > SPILL_MAX ? -EFBIG : fs_write_all(spill->fd, data, len);
    if (r < 0) {
        spill->has_failed = true;
        close_fd(&spill->fd);
    }
}

static int send_all(struct spill *spill, struct transfer *t, struct err *err)
{
    char *bytes = xmalloc(CHUNK);
    ssize_t n;
    int r = lseek(spill->fd, 0, SEEK_SET) < 0 ? -errno : 0;
    while (r == 0 && (n = read(spill->fd, bytes, CHUNK)) != 0)
        r = n < 0 ? -errno : transfer_write(t, bytes, (size_t)n, err);
    free(bytes);
    return r;
}

bool spill_deliver(struct spill *spill, struct session *s, const char *name)
{
    struct transfer *t = NULL;
    struct err err = {0};
    bool is_new;
    if (spill->fd < 0 || session_file_put(s, name, spill->size, false, &t, &err) < 0)
        return false;
    bool is_sent = send_all(spill, t, &err) == 0 && transfer_commit(t, &is_new, &err) == 0;
    transfer_done(t);
    return is_sent;
}
