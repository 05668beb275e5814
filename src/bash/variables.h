/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The variables of a shell, read from the state that it reports (bash.h). */

#include <stddef.h>

#include "base/buf.h"

/* Appends {"variables": [...], "more": N} (docs/internals/kernels.md). Leaves out what every
 * shell has. */
void variables_list(struct buf *b, const char *state, size_t len);
