/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Patterns for paths of the host, as written in runtime.json and base.json. */

#include "base/strv.h"

#include <stdbool.h>

/* Returns a copy with placeholders replaced: a leading "~/" by `home` (by /root when root has
 * none, NULL or no absolute path), a leading "{bin}/" by the directory of the running program,
 * and {multiarch} by the name of this machine's library directory (x86_64-linux-gnu). NULL when
 * there is no home. */
char *hostpath_expand(const char *path, const char *home);

/* Adds every existing path that the absolute pattern matches: `*`, `?` and `[...]` within one
 * component, names with a leading dot only when the pattern's component has one. Newest version
 * first: go-1.21 before go-1.9. A path without wildcards is added if it exists. */
void hostpath_glob(const char *pattern, struct strv *ret);

bool hostpath_has_wildcard(const char *path);
