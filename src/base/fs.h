/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Files on the trusted side. Paths that a stranger had a hand in are opened only through
 * fs_open_beneath. Every descriptor is O_CLOEXEC. All return 0 or negative errno, or as said. */

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct buf;

/* openat2 with RESOLVE_BENEATH|NO_SYMLINKS|NO_MAGICLINKS|NO_XDEV; falls back to a component walk
 * with O_NOFOLLOW where openat2 is missing. Adds O_CLOEXEC|O_NOCTTY|O_NONBLOCK. Trailing slashes
 * are refused. Returns a descriptor or negative errno (-ELOOP for a link, -EXDEV for an escape). */
int fs_open_beneath(int dir_fd, const char *path, int flags, mode_t mode);

/* Reads a whole regular file of at most max bytes into b (which keeps its own maximum).
 * -EMSGSIZE when larger. */
int fs_read_file(int dir_fd, const char *path, struct buf *b);

/* Writes all bytes, whatever write(2) accepts at once. */
int fs_write_all(int fd, const void *data, size_t len);

/* One write(2) of a short string to a kernel file such as a cgroup or map file. */
int fs_write_once(int dir_fd, const char *path, const char *text);

/* Reads a small kernel file into out, NUL-terminated, without the trailing newline. Returns length. */
ssize_t fs_read_small(int dir_fd, const char *path, char *out, size_t out_size);

/* Like mkdir -p; components that exist must be directories. */
int fs_mkdirs(int dir_fd, const char *path, mode_t mode);

/* Removes a tree without following links or crossing file systems, without recursion.
 * Missing is success. */
int fs_remove_tree(int dir_fd, const char *name);

/* Copies by reflink, copy_file_range or read/write. */
int fs_copy_fd(int from_fd, int to_fd);

/* A sealed memfd holding these bytes, positioned at 0, open for reading and writing but sealed
 * against both growth and change. Returns the descriptor. */
int fs_memfd_sealed(const char *name, const void *data, size_t len);
