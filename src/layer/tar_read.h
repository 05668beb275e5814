/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Reads the tar file of a stranger: plain headers (v7, ustar, GNU long names) and extended
 * ones (pax). Strict: what two readers could understand differently is refused. Only a program
 * inside a box reads such bytes. */

#include "base/err.h"
#include "layer/tar.h"

#include <stdbool.h>

struct tar_entry {
    enum tar_type type;
    mode_t mode;         /* permissions with set-id and sticky bits */
    uint64_t size;       /* bytes of content; 0 unless it is a file */
    unsigned attributes; /* extended attributes that the entry has; their values are not read */
    char path[LAYER_PATH_MAX + 1]; /* as written: may be absolute, may have ".." */
    char link[LAYER_PATH_MAX + 1]; /* target of a link, else "" */
};

struct tar_reader {
    layer_source *read;
    void *context;
    uint64_t left; /* content of the current entry that has not been read */
    uint64_t pad;  /* padding behind it */
    struct tar_entry entry;
};

/* Goes to the next entry and skips what is left of the current one. Returns 1, or 0 at the end
 * of the archive, or a negative errno: -EINVAL and ERR_INVALID when the archive is at fault. */
int tar_next(struct tar_reader *r, struct err *err);

/* Reads content of the current entry: how many bytes, 0 at its end, or negative errno. */
ssize_t tar_read_data(struct tar_reader *r, void *data, size_t len, struct err *err);

/* Reads what follows the end of the archive, so that the writer is not cut off. */
int tar_drain(struct tar_reader *r, struct err *err);
