/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A stream of a stranger, as its plain bytes: gzip and zstd are found by their first bytes.
 * What comes out is counted against a limit, so a small stream cannot become an endless one. */

#include "base/err.h"
#include "layer/tar.h"

#include <stdbool.h>

struct layer_input;

/* Reads with `read`, to at most max_bytes plain bytes. err is filled in by later reads. */
struct layer_input *layer_input_new(
    layer_source *read, void *context, uint64_t max_bytes, struct err *err);
void layer_input_free(struct layer_input *in);

/* A layer_source for a struct layer_input. */
ssize_t layer_input_read(void *input, void *data, size_t len);

/* The sha256 of all plain bytes that were read, as 64 digits. Ends the count. */
void layer_input_digest(struct layer_input *in, char out[static 65]);

/* A layer_source for an int, a descriptor. */
ssize_t layer_read_fd(void *fd, void *data, size_t len);
