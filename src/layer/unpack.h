/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Turns the tar file of a stranger into the directory of a layer. Runs with the rights of a
 * box. docs/images.md says what is refused and what is left out. */

#include "base/err.h"
#include "layer/tar.h"

struct layer_limits {
    uint64_t max_bytes;   /* content of all files; each hard link counts like its file */
    uint64_t max_entries; /* entries of the archive, and directories that it implies */
};

struct layer_report {
    uint64_t entries, bytes, hard_links, deletions;
    uint64_t devices;    /* left out: devices, fifos */
    uint64_t attributes; /* left out */
    uint64_t set_ids;    /* bits dropped */
};

/* The most plain bytes that an archive within the limits can have. */
uint64_t layer_stream_max(const struct layer_limits *limits);

/* Reads the whole stream and makes the tree below dir_fd, an empty directory that no other
 * process changes. -EINVAL with ERR_INVALID, or -EFBIG with ERR_TOO_LARGE, when the archive is
 * at fault; the directory then has the entries before the fault. */
int layer_unpack(int dir_fd, layer_source *read, void *context,
    const struct layer_limits *limits, struct layer_report *ret, struct err *err);
