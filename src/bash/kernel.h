/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The interpreter of a bash session (docs/internals/kernels.md): the channel is descriptor 3,
 * output goes to 1 and 2. */

/* Serves the channel with this bash until it closes. */
_Noreturn void kernel_run(const char *program);
