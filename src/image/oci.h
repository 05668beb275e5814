/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Images of other programs: reading what `hermes-layer split` took apart in a box, and writing
 * archives. Formats: OCI image layout and docker save. Nothing here reads tar or decompresses
 * what a stranger wrote; JSON goes through the bounded parser. docs/images.md has the rules.
 * Reading is in oci_import.c, writing in oci_export.c.
 *
 * An import, lowest layer first:
 *   1. box: hermes-layer split DIR < archive            prints a list
 *   2. oci_archive_open(list), oci_import()             or OCI_ROOT_TAR: the archive is the
 * layer
 *   3. for each layer: oci_layer_open()                 the blob, its size and digest checked
 *      box: hermes-layer unpack DIR < blob              prints a report
 *      oci_layer_check(report)                          the digest of the plain tar
 */

#include "base/err.h"
#include "layer/tar.h"

#include <jansson.h>
#include <stdint.h>

enum {
    OCI_DIGEST_LEN = 71, /* "sha256:" and 64 digits */
    OCI_LAYERS_MAX = 200,
    OCI_NAME_MAX = 255,
    OCI_JSON_MAX = 4 << 20, /* bytes of one JSON member */
};

/* --- reading */

/* The members of an archive, as files of a directory. */
struct oci_archive;

/* `list` is what `hermes-layer split` printed; a box may have printed anything. dir_fd is the
 * directory it wrote to; the caller keeps it open. */
int oci_archive_open(
    const char *list, size_t len, int dir_fd, struct oci_archive **ret, struct err *err);
void oci_archive_free(struct oci_archive *archive); /* accepts NULL */

enum oci_kind {
    OCI_ROOT_TAR, /* no image: the archive itself is the one layer */
    OCI_LAYOUT,
    OCI_DOCKER,
};

struct oci_layer {
    unsigned file;                    /* in the directory of the archive */
    uint64_t size;                    /* of the blob */
    char digest[OCI_DIGEST_LEN + 1];  /* of the blob; "" in docker archives, which have none */
    char diff_id[OCI_DIGEST_LEN + 1]; /* of the plain tar */
};

struct oci_image {
    enum oci_kind kind;
    char name[OCI_NAME_MAX + 1];       /* name in the archive, or "" */
    char manifest[OCI_DIGEST_LEN + 1]; /* digest of the manifest, or "" */
    /* {"env": ["K=V"], "entrypoint": [...], "cmd": [...], "working_dir": "/x", "labels":
     * {...}}: those members that the image has, checked to be of these types. */
    json_t *config;
    struct oci_layer *layers; /* lowest first */
    size_t layer_count;
};
void oci_image_done(struct oci_image *image); /* accepts a zeroed one */

/* Finds the image for this machine. `wanted` names one image of several, or is NULL. The text
 * of ERR_INVALID names the fault, the platforms or the names that the archive has. An archive
 * without the files of an image gives OCI_ROOT_TAR and no layers. */
int oci_import(const struct oci_archive *archive, const char *wanted, struct oci_image *ret,
    struct err *err);

/* Opens the blob of a layer, after its size and digest were checked. Returns a descriptor at
 * the beginning of the file. */
int oci_layer_open(
    const struct oci_archive *archive, const struct oci_layer *layer, struct err *err);

/* Compares the report of `hermes-layer unpack` with what the image says of the layer. */
int oci_layer_check(
    const struct oci_layer *layer, const char *report, size_t len, struct err *err);

/* The name of this machine's architecture in images: "amd64", "arm64". */
const char *oci_architecture(void);

/* --- writing */

enum oci_packing { OCI_PLAIN, OCI_GZIP, OCI_ZSTD };

struct oci_export {
    enum oci_kind kind;       /* OCI_LAYOUT or OCI_DOCKER */
    enum oci_packing packing; /* OCI_GZIP or OCI_ZSTD; docker archives are always plain */
    const char *name;         /* of the image in the archive */
    const json_t *config;     /* as in struct oci_image, or NULL */
    const int *layer_fds;     /* directories, lowest first */
    size_t layer_count;
    int spool_fd; /* a directory for unnamed files: all layers, packed, for the time of the call
                   */
    const int *cancel_fd; /* when it becomes readable, the call ends with -ECANCELED; or NULL */
};

/* Writes the archive as a tar stream. The same layers, name and configuration give the same
 * bytes. */
int oci_export(const struct oci_export *x, layer_sink *write, void *context, struct err *err);
