/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* One layer as a blob: packed into an unnamed file, because an archive needs its size before
 * its bytes. */

#include "image/oci.h"

struct oci_blob {
    int fd; /* at its beginning; the caller closes it */
    uint64_t size;
    char digest[OCI_DIGEST_LEN + 1];  /* of the blob */
    char diff_id[OCI_DIGEST_LEN + 1]; /* of the plain tar */
};

int oci_spool(const struct oci_export *x, int layer_fd, enum oci_packing packing,
    struct oci_blob *ret, struct err *err);
