/* SPDX-License-Identifier: Apache-2.0 */

/* Keeps the whole of an output that is too long for the answer. The bytes go to an unlinked
 * file of the server, and after the exec into the box: there the caller can fetch it, the code
 * can read it, and it counts against the session's own limits. */

#include "session/exec/overflow.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/id.h"
#include "base/os/fs.h"
#include "session/exec/internal.h"
#include "session/files/files.h"
#include "state/state.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/vfs.h>
#include <unistd.h>

enum {
    CHUNK = 64 << 10,
    SPILL_MAX = 64 << 20, /* bytes per stream; a longer output is not kept */
    STEP = 4 << 20,       /* bytes reserved on the disk at one time */
    FREE_MIN = 1 << 30,   /* bytes that must stay free on the disk */
};

void spill_init(struct spill *spill, struct ledger *disk, int owner)
{
    *spill = (struct spill){.fd = -1};
    purse_open(&spill->purse, disk, owner);
}

void spill_done(struct spill *spill)
{
    close_fd(&spill->fd);
    purse_close(&spill->purse);
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

/* The disk holds more important data. So free space is checked before each step, and space that
 * other spills have reserved counts as used. */
static int take_room(struct spill *spill, uint64_t size)
{
    struct statfs fs;
    while (size > spill->purse.bytes) {
        if (fstatfs(spill->fd, &fs) < 0 ||
            (uint64_t)fs.f_bavail * (uint64_t)fs.f_bsize < (uint64_t)FREE_MIN ||
            !purse_take(&spill->purse, STEP))
            return -ENOSPC;
    }
    return 0;
}

static int append(struct spill *spill, const char *data, size_t len)
{
    spill->size += len;
    int r = spill->size > SPILL_MAX ? -EFBIG : take_room(spill, spill->size);
    return r < 0 ? r : fs_write_all(spill->fd, data, len);
}

/* Starts the file with the bytes of the capture. */
static int begin(struct spill *spill, const struct capture *c, const char *dir)
{
    char notice[CAPTURE_NOTICE];
    struct iovec pieces[CAPTURE_PIECES];
    int r = 0;
    spill->fd = open_nameless(dir);
    if (spill->fd < 0)
        return -errno;
    capture_pieces(c, notice, pieces);
    for (size_t i = 0; r == 0 && i < CAPTURE_PIECES; i++)
        r = append(spill, pieces[i].iov_base, pieces[i].iov_len);
    return r;
}

void spill_add(struct spill *spill, struct session *s, const struct capture *c,
    const char *data, size_t len)
{
    int r = 0;
    if (spill->has_failed || s->spec.place || (spill->fd < 0 && c->total + len <= c->max))
        return;
    if (spill->fd < 0)
        r = begin(spill, c, s->all->state->config.state_dir);
    if (r == 0)
        r = append(spill, data, len);
    if (r < 0) {
        spill->has_failed = true;
        spill_done(spill);
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
