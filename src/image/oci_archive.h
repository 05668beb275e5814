/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Members of an archive by name, for oci_import.c. */

#include "image/oci.h"

#include <nettle/sha2.h>
#include <stdbool.h>

struct oci_member {
    const char *name;
    unsigned file;
    uint64_t size;
};

/* The member of that name, links followed once; NULL when there is none. */
const struct oci_member *oci_member_find(const struct oci_archive *a, const char *name);

/* Reads a JSON member. `digest`: the digest that its content must have, or NULL. The caller
 * owns *ret. */
int oci_member_json(const struct oci_archive *a, const struct oci_member *m, const char *digest,
    json_t **ret, struct err *err);

/* Whether the text is "sha256:" and 64 digits. */
bool oci_is_digest(const char *text);

/* "sha256:HEX" of a file from its beginning; leaves it at its beginning. */
int oci_digest_fd(int fd, char out[static OCI_DIGEST_LEN + 1]);
void oci_digest_text(const void *data, size_t len, char out[static OCI_DIGEST_LEN + 1]);
void oci_digest_end(struct sha256_ctx *hash, char out[static OCI_DIGEST_LEN + 1]);
