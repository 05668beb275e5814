/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Reads files that the command line names: any kind of file, `-` for stdin, of bounded size. */

#include "base/buf.h"
#include "base/err.h"

/* Returns a descriptor to read from. The caller closes it. */
int input_open(const char *path, struct err *err);

/* Initializes *to and reads the descriptor to its end. `path` is for messages. ERR_TOO_LARGE
 * above max bytes. */
int input_take(int fd, const char *path, size_t max, struct buf *to, struct err *err);

/* input_open() and input_take(). *to is initialized in any case. */
int input_read(const char *path, size_t max, struct buf *to, struct err *err);
