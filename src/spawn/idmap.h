/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Writable directories of the operator. The payload of a box has a host id of its own, which
 * owns nothing on the host. On an id-mapped mount the owner of the directory appears as that
 * id, and files that the payload makes belong to the owner outside. */

#include <sys/types.h>

/* Makes a detached copy of the mounts at `path` and below. On it the owner and the group of
 * `path` appear as host id `payload`; files of other owners appear as `nobody`. Returns its
 * descriptor, or negative errno: -EOPNOTSUPP where a file system cannot do it, -EPERM where we
 * may not. */
int idmap_clone(const char *path, uid_t payload);
