/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Files that the command line names: of any kind, `-` for stdin, and of a size that is bounded.
 */

#include "base/buf.h"
#include "base/err.h"

/* A descriptor to read from, which the caller closes. */
int input_open(const char *path, struct err *err);

/* Reads it to its end into *to, which it makes; path is for messages. ERR_TOO_LARGE past max.
 */
int input_take(int fd, const char *path, size_t max, struct buf *to, struct err *err);

/* Both. */
int input_read(const char *path, size_t max, struct buf *to, struct err *err);
