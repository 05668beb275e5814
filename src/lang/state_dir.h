/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The state directory: root trees, versions and the compile cache. */

#include "base/err.h"

/* Opens the directory `named`; when that is NULL or "", /var/lib/hermes as root, else
 * $XDG_STATE_HOME/hermes or ~/.local/state/hermes. Creates it with mode 0700 if missing. It
 * must belong to this user. Returns a descriptor and the path; the caller frees the path. */
int state_dir_open(const char *named, char **ret_path, struct err *err);
