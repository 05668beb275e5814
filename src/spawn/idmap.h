/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Writable directories of the operator. A box's payload has a host id of its own, which owns
 * nothing; on an id-mapped mount the owner of the directory appears as that id, and what the
 * payload makes belongs to the owner outside. */

#include <sys/types.h>

/* A detached copy of the mounts at a path and below, on which the owner and the group of the
 * path appear as host id `payload`; files of anybody else belong to nobody. Returns its
 * descriptor, or negative errno: -EOPNOTSUPP where a file system cannot do it, -EPERM where we
 * may not. */
int idmap_clone(const char *path, uid_t payload);
