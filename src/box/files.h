/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The helper that reads and writes a session's files (proto/files.h). */

#include <stdint.h>

/* Serves the files below `root` on a unix stream socket until that closes. Uploads leave
 * something of room_bytes free; UINT64_MAX: only the file system bounds them. */
_Noreturn void files_serve(int fd, const char *root, uint64_t room_bytes);
