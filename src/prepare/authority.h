/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The authority that boxes with a secret trust. It is made at every start of a server, signs
 * one certificate for each host of a secret, and is good for those names alone. Its key is
 * thrown away at once: nothing can be signed with it later. */

#include "base/buf.h"
#include "base/err.h"

#include <stddef.h>

/* A certificate and its key, as PEM. */
struct authority_leaf {
    struct buf certificate;
    struct buf key;
};

/* Makes the authority, which is appended to `to` as PEM, and one certificate for each of the
 * hosts. The caller frees the leaves with authority_leaf_done(), also after an error. */
int authority_make(const char *const *hosts, size_t count, struct authority_leaf *leaves,
    struct buf *to, struct err *err);
void authority_leaf_done(struct authority_leaf *leaf);

/* Turns certificates from PEM into a Java key store (JKS), the only form that every version of
 * Java reads. Returns their number in *ret_count; certificates that cannot be read are left
 * out. */
int authority_write_jks(
    const struct buf *pem, struct buf *to, unsigned *ret_count, struct err *err);
