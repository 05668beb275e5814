/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Files on the trusted side. Paths that a stranger had a hand in are opened only through
 * fs_open_beneath. Every descriptor is O_CLOEXEC. All return 0 or negative errno, or as said.
 * dir_fd may be AT_FDCWD. */

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct buf;
struct err;

/* openat2 with RESOLVE_BENEATH|NO_SYMLINKS|NO_MAGICLINKS|NO_XDEV; falls back to a component
 * walk with O_NOFOLLOW where openat2 is missing. Adds O_CLOEXEC|O_NOCTTY|O_NONBLOCK. Returns a
 * descriptor or negative errno: -ELOOP for a link (O_PATH|O_NOFOLLOW opens a last one itself),
 * -EXDEV for an absolute path, any ".." component or another mount, -EINVAL for a trailing
 * slash. The caller checks the type of what it got. */
int fs_open_beneath(int dir_fd, const char *path, int flags, mode_t mode);

/* Appends a whole regular file to b. -EMSGSIZE when it does not fit, -EISDIR for a directory,
 * -EINVAL for anything else; b is then as before. Follows links. */
int fs_read_file(int dir_fd, const char *path, struct buf *b);

/* The same for a file that is obeyed. It has to belong to root, to the user of this process or
 * to the user who became root by sudo, as has a link that leads to it, and others may not write
 * to it: else -EPERM. The message names the file and the remedy. */
int fs_read_trusted(const char *path, struct buf *b, struct err *err);

/* Appends all there is to read from a descriptor, of `size` bytes where that is known, else 0.
 * -EMSGSIZE when it does not fit. */
int fs_read_to_end(int fd, size_t size, struct buf *b);

/* Writes all bytes, whatever write(2) accepts at once; waits where a descriptor would block. */
int fs_write_all(int fd, const void *data, size_t len);

/* One write(2) of a short string to an existing kernel file such as a cgroup or map file. */
int fs_write_once(int dir_fd, const char *path, const char *text);

/* Reads a small kernel file into out, NUL-terminated, without the trailing newline. Returns
 * the length, or -EMSGSIZE when out is too small; out is "" on failure. */
ssize_t fs_read_small(int dir_fd, const char *path, char *out, size_t out_size);

/* Like mkdir -p; components that exist must be directories (or links to some). */
int fs_mkdirs(int dir_fd, const char *path, mode_t mode);

/* The same beneath dir_fd, for a path that a stranger chose: no component may be a link. */
int fs_mkdirs_beneath(int dir_fd, const char *path, mode_t mode);

/* Removes a tree, or a single file, without following links or crossing mounts, without
 * recursion, with a fixed number of descriptors whatever the depth. Missing is success; a name
 * that ends in '/', "." or ".." is -EINVAL. Goes on after a failure and returns the first. Its
 * writers should be gone: while new entries appear it does not end. */
int fs_remove_tree(int dir_fd, const char *name);

/* Gives a directory that has another owner, and what this owner has in it, to somebody else:
 * without following links or crossing mounts, to a depth of 32 (else -ELOOP). Entries of others
 * stay as they are: a link of a file into the directory gives nothing away. */
int fs_give_tree(int dir_fd, const char *name, uid_t uid, gid_t gid);

/* Copies from the one's offset to its end, to the other's offset: by reflink, copy_file_range
 * or read/write. */
int fs_copy_fd(int from_fd, int to_fd);

/* The path of what lies beside the program that runs, wherever that was started from; the
 * caller frees. NULL where /proc does not tell. */
char *fs_beside_self(const char *name);

/* A sealed memfd holding these bytes, positioned at 0, open for reading and writing but sealed
 * against both growth and change. Returns the descriptor. */
int fs_memfd_sealed(const char *name, const void *data, size_t len);
