/* SPDX-License-Identifier: Apache-2.0 */

/* See input.h. */

#include "cli/input.h"

#include "base/cleanup.h"
#include "base/os/fs.h"
#include "base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *name_of(const char *path)
{
    return str_eq(path, "-") ? "stdin" : path;
}

static int cannot(enum err_code code, const char *path, int error, struct err *err)
{
    return err_set(err, code, error, "cannot read %s: %s", name_of(path), strerror(error));
}

int input_open(const char *path, struct err *err)
{
    int fd = str_eq(path, "-") ? fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1)
                               : open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    return fd < 0 ? cannot(ERR_NOT_FOUND, path, errno, err) : fd;
}

int input_take(int fd, const char *path, size_t max, struct buf *to, struct err *err)
{
    struct stat st;
    bool is_known = fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0;
    buf_init(to, max);
    int r = fs_read_to_end(fd, is_known ? (size_t)st.st_size : 0, to);
    if (r == -EMSGSIZE && max >= 1 << 20)
        return err_set(
            err, ERR_TOO_LARGE, EFBIG, "%s is larger than %zu MiB", name_of(path), max >> 20);
    if (r == -EMSGSIZE)
        return err_set(
            err, ERR_TOO_LARGE, EFBIG, "%s is larger than %zu bytes", name_of(path), max);
    return r < 0 ? cannot(ERR_INVALID, path, -r, err) : 0;
}

int input_read(const char *path, size_t max, struct buf *to, struct err *err)
{
    buf_init(to, max); /* also for a file that cannot be opened: the caller frees it */
    cleanup_close int fd = input_open(path, err);
    return fd < 0 ? fd : input_take(fd, path, max, to, err);
}
