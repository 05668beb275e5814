/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Makes the tree of a root and the list of its entries; lang/rootfs.c decides when. */

#include "base/err.h"
#include "lang/rootfs.h"

/* Fills the empty directory tree_fd, which the spawner will find later as DIR_PATH/tree beside
 * an empty file DIR_PATH/empty, and lists the entries. `base_path` and `base_text` are
 * base.json. Set-uid files, set-gid files and files with capabilities do not get into the tree
 * and are covered by the empty file where a bound directory has one. */
struct root_build {
    const struct root_spec *spec;
    const char *base_path;
    const char *base_text;
    size_t base_len;
    const char *dir_path;
    int tree_fd;
};
int root_build(const struct root_build *build, struct root_entries *ret, struct err *err);
