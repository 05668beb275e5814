/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Deletions on disk, in the form that overlayfs with `userxattr` understands and that a box can
 * make: an empty file with the attribute user.overlay.whiteout, in a directory whose attribute
 * user.overlay.opaque is "x" (Linux 6.7). "y" there makes the directory opaque: it hides the
 * one of the layers below. The other form, a character device 0/0, is what overlayfs itself
 * leaves in the upper directory of a build; a box may not make one. */

#include <stdbool.h>
#include <sys/stat.h>

enum whiteout_dir {
    WHITEOUT_DIR_PLAIN,
    WHITEOUT_DIR_MIXED,  /* may have deletions by attribute */
    WHITEOUT_DIR_OPAQUE, /* deletions in it mean nothing */
};

/* dir_fd must be open for reading, not O_PATH. */
enum whiteout_dir whiteout_dir(int dir_fd);

/* Whether the name is a deletion of either form; st is its status. */
bool whiteout_is(int dir_fd, enum whiteout_dir kind, const char *name, const struct stat *st);

/* Makes a deletion. -EEXIST when the name is there, -EOPNOTSUPP when this kernel's overlayfs
 * would show the deletion as a file. Nothing happens in an opaque directory. */
int whiteout_make(int dir_fd, const char *name);

/* Makes the directory opaque, and removes deletions from it. */
int whiteout_hide(int dir_fd);
