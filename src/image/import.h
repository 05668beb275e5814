/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Imports the archive of another program, or of another Hermes, as an image: an OCI layout,
 * what docker save writes, or a root file system as tar; plain, gzip or zstd. Only hermes-layer
 * reads the archive, in boxes without a network. image/oci.h has the steps. */

#include "image/build.h"

struct image_import {
    const char *name;              /* of the new image, or NULL */
    const struct runtime *runtime; /* the language that the caller named, or NULL: it is
                                    * detected */
    const char *wanted;            /* which of several images of the archive, or NULL */
    int archive_fd;                /* a file; read from its beginning */
    const struct runtime_registry *runtimes;
};

/* The caller has the turn (image_build_turn). ERR_INVALID, ERR_TOO_LARGE: the archive is at
 * fault. Nothing is left of an import that fails. */
int image_import(const struct image_builder *builder, const struct image_import *from,
    struct image *ret, struct err *err);

/* What kind of image its layers make (image/import_kind.c). layer_fds: the trees, the newest
 * first; digests alike. Runs the interpreter of a whole root.
 */
int image_kind_find(const struct image_builder *builder, const struct image_import *from,
    const json_t *told, const int *layer_fds, const json_t *digests, struct image_kind *ret,
    struct err *err);
