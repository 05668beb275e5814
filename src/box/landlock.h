/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Landlock: a second fence around the file system that survives a mistake with mounts, and
 * around signals and abstract sockets. */

#include <stddef.h>

enum { LANDLOCK_LEAST_ABI = 2 }; /* below it no ruleset is used */

/* ABI of this kernel, 0 when it has none. */
int landlock_abi(void);

/* Restricts the calling process, from inside the pivoted root: reading and executing
 * everywhere, writing in /box, /tmp, /dev/shm, to devices, and below the `count` writable mount
 * points. Needs no_new_privs. Returns 0 or negative errno; does nothing below the
 * least ABI. */
int landlock_restrict(int abi, const char *const *writable, size_t count);
