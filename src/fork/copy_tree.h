/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Copies what lies below one directory to another, by descriptor and never through a link:
 * files (holes stay holes), directories, links, named pipes, with modes and times; sockets are
 * left out, hard links become files. Everything belongs to the caller afterwards. The names are
 * a stranger's: run it with as few rights as will do. Returns 0 or negative errno. */
int copy_tree(int from_fd, int to_fd);
