/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Reads a package (proto/package.h), in a process that has no rights left to lose. Every length
 * is checked against the mapping, because its writer may have been taken over. */

#include "proto/package.h"

#include <stddef.h>
#include <stdint.h>

struct package {
    const char *data;
    size_t size;
    struct package_header head;
    const char *strings;
    size_t files_at; /* offset of the first struct package_file */
};

/* Checks the header and the strings. -EBADMSG when anything does not add up. */
int package_parse(const void *data, size_t size, struct package *ret);

/* Maps a sealed memfd and parses it. The mapping stays. */
int package_open(int fd, struct package *ret);

/* The next string; *at is its offset, begins at 0 and moves on. NULL past the end. */
const char *package_string(const struct package *package, size_t *at);

/* Reads the next file. *at is its position; the caller sets it to files_at before the first
 * call. Returns 1, 0 after the last file, or -EBADMSG. */
int package_next_file(const struct package *package, size_t *at, struct package_file *ret,
    const char **ret_name, const void **ret_content);
