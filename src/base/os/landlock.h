/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Landlock for a program of ours that needs a few paths. */

#include "base/os/sys.h"

#include <stdbool.h>
#include <stdint.h>

enum { LANDLOCK_READ = LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR };

/* Leaves `access` to what lies below the paths of `list`, which ends with NULL; paths that do
 * not exist are left out. No port can be bound, and none connected to without `may_connect`.
 * Returns 0, also on Linux without Landlock, or negative errno. */
int landlock_leave(const char *const *list, uint64_t access, bool may_connect);

/* Leaves writing to what lies below these paths. Reading and executing stay as they are. Where
 * Linux can, only what the process itself starts can be signalled. */
int landlock_leave_writing(const char *const *list);
