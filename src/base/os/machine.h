/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Resources of this machine, or of our control group where that allows less. */

#include <stdbool.h>
#include <stdint.h>

/* Processors that this process may run on, by its affinity. */
unsigned machine_cores(void);
uint64_t machine_memory_mb(void);

/* How much of the host's memory programs could have now, in percent; 100 when not known. The
 * descriptor is of /proc/meminfo: a confined process cannot open that file. */
unsigned machine_available_percent(int meminfo_fd);

/* The most processes and threads at one time. */
uint64_t machine_processes(void);
