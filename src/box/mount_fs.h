/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* File systems that belong to one box, as detached mounts. Both functions return the descriptor
 * or negative errno. */

#include <stdint.h>

/* A tmpfs with these limits; 0 means none. `owner` is the uid and gid of its top directory, or
 * -1 for the caller's; `attrs` are ATTR_* of base/os/sys.h. */
int mount_fs_tmpfs(
    uint64_t bytes, uint64_t inodes, const char *mode, int owner, unsigned attrs);

/* A devpts with at most `max` terminals. Each terminal belongs to the process that opens it. */
int mount_fs_devpts(unsigned max);
