/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What this machine has, or the control group that we are in where that allows less. */

#include <stdbool.h>
#include <stdint.h>

unsigned machine_cores(void);
uint64_t machine_memory_mb(void);

/* How many processes and threads may exist at one time. */
uint64_t machine_processes(void);
