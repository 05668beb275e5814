/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Reads a package (proto/package.h), in a process that has no rights left to lose. Every length
 * is checked against the mapping, because its writer may have been taken over. */

#include "proto/package.h"

#include <stddef.h>
#include <stdint.h>

struct job {
    const char *data;
    size_t size;
    struct job_header head;
    const char *strings;
    size_t files_at; /* offset of the first struct job_file */
};

/* Checks the header and the strings. -EBADMSG when anything does not add up. */
int job_parse(const void *data, size_t size, struct job *ret);

/* Maps a sealed memfd and parses it. The mapping stays. */
int job_open(int fd, struct job *ret);

/* The next string; *at is its offset, begins at 0 and moves on. NULL past the end. */
const char *job_string(const struct job *job, size_t *at);

/* Reads the next file. *at is its position; the caller sets it to files_at before the first
 * call. Returns 1, 0 after the last file, or -EBADMSG. */
int job_next_file(const struct job *job, size_t *at, struct job_file *ret,
    const char **ret_name, const void **ret_content);
