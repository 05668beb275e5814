/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Makes a root tree and the list of its entries. lang/rootfs.c decides when. */

#include "base/err.h"
#include "lang/rootfs.h"

/* Fills the empty directory tree_fd and lists the entries. The spawner will find it as
 * DIR_PATH/top/tree. `base_path` and `base_text` are those of
 * base.json. Set-uid files, set-gid files and files with capabilities are left out of the tree;
 * in a bound directory an empty file covers them. */
struct root_build {
    const struct root_spec *spec;
    const char *base_path;
    const char *base_text;
    size_t base_len;
    const char *dir_path;
    int tree_fd;
    struct root_walks *walks;
};
int root_build(const struct root_build *build, struct root_entries *ret, struct err *err);
