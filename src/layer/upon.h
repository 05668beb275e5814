/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A build upon a whole root (docs/images.md). The box's root begins as a copy of the image,
 * which stays readable beside it. At the end everything that is the same in the image is
 * removed from the root, and the rest is the new layer. Both run with the rights of the box. A
 * directory on another file system is a mount of the box and no part of either. */

#include "base/err.h"

/* Copies the tree `from_fd` into the tree `to_fd`. Names that are there already stay. */
int upon_copy(int from_fd, int to_fd, struct err *err);

/* Removes from the tree top_fd all entries that base_fd has in the same form, and makes
 * deletions (whiteout.h) for entries that only base_fd has. Files that their owner cannot
 * read become readable. */
int upon_subtract(int top_fd, int base_fd, struct err *err);
