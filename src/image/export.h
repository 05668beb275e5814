/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Writes an image as an archive that other programs read (image/oci.h). A label of its
 * configuration has what Hermes knows of it, so that an import gives the same image again. */

#include "image/oci.h"
#include "image/store.h"

enum { EXPORT_ENV_MAX = 128 };

struct image_export {
    enum oci_kind kind;
    enum oci_packing packing;
    const int *cancel_fd; /* as in struct oci_export */
};

/* Reads "oci" or "docker" (NULL: oci), and "gzip" or "zstd" (NULL: gzip). ERR_INVALID names the
 * field. */
int image_export_parse(
    const char *format, const char *compression, struct image_export *ret, struct err *err);

/* Holds the layers meanwhile. */
int image_export(struct image_store *store, const struct image *image,
    const struct image_export *options, layer_sink *write, void *context, struct err *err);

/* Reads the label: {language, version, packages?, lock?}, checked to be of these types; NULL
 * without a label. */
json_t *export_label_read(const json_t *config);

/* Makes an unnamed file for an archive in the store. */
int image_spool_open(struct image_store *store, struct err *err);
