/* SPDX-License-Identifier: Apache-2.0 */

/* Plain reading and writing, and the path of another program of Hermes: the part of fs.h that
 * the spawner needs. It is a file of its own because the spawner is built with another C
 * library and links little. */

#include "base/os/fs.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"

int fs_write_all(int fd, const void *data, size_t len)
{
    const char *p = data;

    while (len > 0) {
        ssize_t n = write(fd, p, len);
        if (n < 0 && errno == EAGAIN) {
            struct pollfd ready = {.fd = fd, .events = POLLOUT};
            if (poll(&ready, 1, -1) < 0 && errno != EINTR)
                return -errno;
            continue;
        }
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        if (n == 0)
            return -EIO;
        p += n;
        len -= (size_t)n;
    }
    return 0;
}

int fs_write_once(int dir_fd, const char *path, const char *text)
{
    cleanup_close int fd = openat(dir_fd, path, O_WRONLY | O_CLOEXEC | O_NOCTTY);
    size_t len = strlen(text);

    if (fd < 0)
        return -errno;
    ssize_t n;
    do {
        n = write(fd, text, len);
    } while (n < 0 && errno == EINTR);
    if (n < 0)
        return -errno;
    return (size_t)n == len ? 0 : -EIO;
}

ssize_t fs_read_small(int dir_fd, const char *path, char *out, size_t out_size)
{
    size_t len = 0;

    if (out_size == 0)
        return -EINVAL;
    out[0] = '\0';
    cleanup_close int fd = openat(dir_fd, path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (fd < 0)
        return -errno;
    /* Fills the place of the NUL too: only then is the file known to be too long. */
    while (len < out_size) {
        ssize_t n = read(fd, out + len, out_size - len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            out[0] = '\0';
            return -errno;
        }
        if (n == 0)
            break;
        len += (size_t)n;
    }
    if (len == out_size) {
        out[0] = '\0';
        return -EMSGSIZE;
    }
    if (len > 0 && out[len - 1] == '\n')
        len--;
    out[len] = '\0';
    return (ssize_t)len;
}

char *fs_beside_self(const char *name)
{
    char self[PATH_MAX];
    ssize_t len = readlink("/proc/self/exe", self, sizeof(self) - 1);
    if (len <= 0)
        return NULL;
    self[len] = '\0';
    char *slash = strrchr(self, '/');
    return slash ? xasprintf("%.*s/%s", (int)(slash - self), self, name) : NULL;
}
