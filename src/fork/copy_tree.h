/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Copies everything below one directory to another, by descriptor and never through a link:
 * files (holes stay holes), directories, links, named pipes, with modes and times. Sockets are
 * left out, hard links become separate files. The caller owns everything afterwards. The names
 * are untrusted: run it with as few rights as possible. Returns 0 or negative errno. */
int copy_tree(int from_fd, int to_fd);
