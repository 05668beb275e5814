/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Files of an image store: names that are complete or temporary. */

#include "base/id.h"

#include <dirent.h>
#include <stddef.h>

/* Opens a directory to list it, or NULL. store_files_next() returns the next name that is not
 * temporary, or NULL. */
DIR *store_files_dir(int dir_fd, const char *path);
const char *store_files_next(DIR *dir);

/* Writes dir/name under a temporary name and renames it. */
int store_files_write(
    int dir_fd, const char *dir, const char *name, const char *text, size_t len);

/* A layer gets its name in two steps. The first takes as long as the disk needs, so it happens
 * outside of the store's lock: moves incoming/tree into a new directory of layers with a
 * temporary name, with the file `size`, and writes everything to disk. The second gives it its
 * name. */
int store_files_stage_layer(
    int dir_fd, int layers_fd, const char *size, char ret_temporary[ID_MAX]);
int store_files_name_layer(int layers_fd, const char *temporary, const char *hex);

/* An exclusive lock on the tree of a layer: a descriptor, -ENOENT, or -EWOULDBLOCK. */
int store_files_lock(int layers_fd, const char *hex);

/* A shared one. */
int store_files_share(int layers_fd, const char *hex);

/* Gives a layer a temporary name, under which it waits to be removed. */
int store_files_discard(int layers_fd, const char *hex, char ret_temporary[ID_MAX]);

/* Removes temporary names from a directory that are older than a minute. */
void store_files_sweep(int dir_fd, const char *dir);
