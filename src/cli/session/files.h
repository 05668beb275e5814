/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Files of a session from the command line: what `put`, `get`, `ls-files` and `rm-file` of
 * hermes-session do. Local names may be "-" for stdin and stdout. */

#include "cli/session/client.h"

/* `path` is where it goes below /box, or NULL for the name of the local file. */
int files_put(const struct client *client, const char *id, const char *local, const char *path,
    struct err *err);

/* A path that ends in '/' (or is ".") is a directory and comes as tar, or as zip where the
 * local name ends in .zip. */
int files_get(const struct client *client, const char *id, const char *path, const char *local,
    struct err *err);

int files_list(const struct client *client, const char *id, const char *dir, bool recursive,
    json_t **ret, struct err *err);
int files_remove(const struct client *client, const char *id, const char *path, bool recursive,
    struct err *err);
