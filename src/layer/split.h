/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Takes the archive of an image (OCI layout, docker save) apart, inside a box: the members that
 * an image can have become files 0, 1, ... of a directory, and a list says which is which. */

#include "base/buf.h"
#include "layer/unpack.h"

enum { SPLIT_MEMBERS_MAX = 1000, SPLIT_LIST_MAX = 1 << 20 };

/* Reads the whole stream. max_bytes counts the content of all members that are written. Appends
 * to list one line of JSON:
 *   {"members":[{"name":"index.json","file":0,"size":210},
 *               {"name":"a/layer.tar","link":"b/layer.tar"}]}
 * Names have letters, digits and "._-/" only; members with other names are skipped, and so are
 * members that no image needs. Errors as in layer_unpack(). */
int layer_split(int dir_fd, layer_source *read, void *context,
    const struct layer_limits *limits, struct buf *list, struct err *err);
