/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A build upon a whole root (docs/images.md). The box's root begins as a copy of the image,
 * which stays readable beside it. At the end everything that the image has, too, is taken away
 * again, and what is left is the new layer. Both run with the rights of the box. A directory on
 * another file system is a mount of the box and no part of either. */

#include "base/err.h"

/* Copies the tree `from_fd` into the tree `to_fd`. Names that are there already stay. */
int upon_copy(int from_fd, int to_fd, struct err *err);

/* Removes from the tree top_fd what base_fd has just so, and makes deletions (whiteout.h) for
 * what only base_fd has. Files that their owner cannot read become readable. */
int upon_subtract(int top_fd, int base_fd, struct err *err);
