/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Writes canonical tar: owner 0, one time, plain headers (ustar), and an extended header (pax)
 * only for what those cannot say. The same calls give the same bytes on every machine. */

#include "layer/tar.h"

struct tar_writer {
    layer_sink *write;
    void *context;
};

/* The name of a directory ends in '/'. `link` is the target of a link, else NULL. The content
 * of a file follows with tar_put_data() and, when all `size` bytes are there, tar_put_pad(). */
int tar_put_header(struct tar_writer *w, enum tar_type type, const char *path, const char *link,
    uint64_t size, mode_t mode);
int tar_put_data(struct tar_writer *w, const void *data, size_t len);
int tar_put_pad(struct tar_writer *w, uint64_t size);

/* A whole file: header, content and padding. */
int tar_put_file(struct tar_writer *w, const char *path, const void *data, size_t len);

/* The end of the archive. */
int tar_put_end(struct tar_writer *w);
