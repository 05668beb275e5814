/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The memory of a process as /proc/PID/maps lists it. The process chooses the names in there,
 * of any length. No other code may read that file: a reader that takes the end of a long name
 * for the next line would believe the process. */

#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

struct mapping {
    uint64_t from, to, inode;
    dev_t device;
    char mode[5];
    const char *name; /* valid until the next line is read */
};

/* Opens the list of the process with this /proc/PID. Returns 0 or negative errno. */
int fork_maps_open(int proc_fd, FILE **ret);

/* Returns 1 with the next mapping, 0 at the end, or negative errno: -E2BIG for a line that does
 * not fit. */
int fork_maps_next(FILE *maps, struct mapping *ret);
