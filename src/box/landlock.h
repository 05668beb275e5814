/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Landlock: a second fence around the file system, which holds even if a mount is wrong, and
 * around signals and abstract sockets. */

#include <stddef.h>

enum { LANDLOCK_LEAST_ABI = 2 }; /* on older kernels no ruleset is used */

/* Landlock ABI of this kernel, 0 when it has none. */
int landlock_abi(void);

/* Restricts the calling process, from inside the pivoted root: it may read and execute
 * everywhere, and write in /box, /tmp, /dev/shm, to devices, and below the `count` writable
 * mount points. Signals and abstract sockets are restricted from ABI 6 on. Needs no_new_privs.
 * Returns 0 or negative errno; does nothing below the least ABI. */
int landlock_restrict(int abi, const char *const *writable, size_t count);
