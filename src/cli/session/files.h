/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Files of a session from the command line: the commands `hermes session files …`. Local names
 * may be "-" for stdin and stdout. */

#include "cli/session/client.h"

/* `path` is the target below /box, or NULL for the local file's name. */
int files_put(const struct client *client, const char *id, const char *local, const char *path,
    struct err *err);

/* A path that ends in '/' (or is ".") is a directory. It comes as tar, or as zip when the local
 * name ends in .zip. */
int files_get(const struct client *client, const char *id, const char *path, const char *local,
    struct err *err);

int files_list(const struct client *client, const char *id, const char *dir, bool recursive,
    json_t **ret, struct err *err);
int files_remove(const struct client *client, const char *id, const char *path, bool recursive,
    struct err *err);
