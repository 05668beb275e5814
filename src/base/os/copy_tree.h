/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Copies everything below one directory to another, by descriptor and never through a link:
 * files (holes stay holes), directories, links, named pipes, with modes and times. Sockets are
 * left out, hard links become separate files. The caller owns everything afterwards. The names
 * are untrusted: run it with as few rights as possible. Returns 0 or negative errno. */

#include <sys/stat.h>

/* Called for each entry before it is copied, unless NULL: returns 1 when it has made the entry
 * itself, 0 to have it copied, or negative errno. */
typedef int copy_special(const struct stat *st, int to_dir, const char *name);

int copy_tree(int from_fd, int to_fd, copy_special *special);
