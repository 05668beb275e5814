/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The interpreter of a bash session (docs/internals/kernels.md): the channel is descriptor 3,
 * output goes to 1 and 2. */

#include <stdbool.h>

/* Serves the channel with this bash until it closes. With is_fresh each exec has a new one, in
 * the directory that the one before was in. */
_Noreturn void kernel_run(const char *program, bool is_fresh);
