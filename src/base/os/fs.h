/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Files on the trusted side. Open paths that a stranger influenced only with fs_open_beneath().
 * Every descriptor is O_CLOEXEC. Functions return 0 or negative errno unless their comment says
 * otherwise. dir_fd may be AT_FDCWD. In fs.c; what hermes-spawn needs of it is in fs_io.c, what
 * is about owners in fs_own.c. */

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct buf;
struct err;

/* openat2 with RESOLVE_BENEATH|NO_SYMLINKS|NO_MAGICLINKS|NO_XDEV; falls back to a component
 * walk with O_NOFOLLOW where openat2 is missing. Adds O_CLOEXEC|O_NOCTTY|O_NONBLOCK. Returns a
 * descriptor or negative errno: -ELOOP for a symbolic link (unless it is the last component and
 * the flags are O_PATH|O_NOFOLLOW, which open the link itself), -EXDEV for an absolute path, a
 * ".." component or another mount, -EINVAL for a trailing slash. The caller checks whether the
 * descriptor is a file, a directory or something else. */
int fs_open_beneath(int dir_fd, const char *path, int flags, mode_t mode);

/* Appends a whole regular file to b. -EMSGSIZE when it does not fit, -EISDIR for a directory,
 * -EINVAL for anything else; b is then as before. Follows links. */
int fs_read_file(int dir_fd, const char *path, struct buf *b);

/* The same for a file that Hermes obeys, such as its configuration. The file, and a link that
 * leads to it, must belong to root, to the user of this process or to the user who became root
 * by sudo. Others must not be able to write to it. Otherwise -EPERM, and the message names the
 * file and the remedy. */
int fs_read_trusted(const char *path, struct buf *b, struct err *err);

/* Appends everything that can be read from a descriptor. `size` is the expected number of
 * bytes, or 0 when it is unknown. -EMSGSIZE when it does not fit. */
int fs_read_to_end(int fd, size_t size, struct buf *b);

/* Writes all bytes, with as many calls of write(2) as it takes; waits where a descriptor would
 * block. */
int fs_write_all(int fd, const void *data, size_t len);

/* One write(2) of a short string to an existing kernel file such as a cgroup or map file. */
int fs_write_once(int dir_fd, const char *path, const char *text);

/* Reads a small kernel file into out, NUL-terminated, without the trailing newline. Returns
 * the length, or -EMSGSIZE when out is too small; out is "" on failure. */
ssize_t fs_read_small(int dir_fd, const char *path, char *out, size_t out_size);

/* Like mkdir -p. Components that exist must be directories or links to directories. */
int fs_mkdirs(int dir_fd, const char *path, mode_t mode);

/* The same beneath dir_fd, for a path that a stranger chose: no component may be a link. */
int fs_mkdirs_beneath(int dir_fd, const char *path, mode_t mode);

/* Removes a tree or a single file. Does not follow links, cross mounts or recurse, and uses a
 * fixed number of descriptors at any depth. A missing name is success; a name that ends in '/',
 * "." or ".." is -EINVAL. Continues after a failure and returns the first one. Processes that
 * write into the tree should be gone: while new entries appear, the function does not end. */
int fs_remove_tree(int dir_fd, const char *name);

/* Changes the owner of a directory that does not belong to uid. Entries that belong to the
 * directory's old owner change too; entries of other users stay, so a hard link to a foreign
 * file gives nothing away. Does not follow links or cross mounts. -ELOOP below a depth of
 * 32. */
int fs_give_tree(int dir_fd, const char *name, uid_t uid, gid_t gid);

/* Copies from the offset of from_fd to its end, to the offset of to_fd: by reflink, by
 * copy_file_range or by read and write. */
int fs_copy_fd(int from_fd, int to_fd);

/* The path of `name` in the directory of the running program; the caller frees. NULL when
 * /proc/self/exe cannot be read. */
char *fs_beside_self(const char *name);

/* Returns a sealed memfd with these bytes, positioned at 0. It is open for reading and writing,
 * but the seals forbid growth and change. */
int fs_memfd_sealed(const char *name, const void *data, size_t len);
