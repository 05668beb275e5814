/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* How hermes-spawn starts hermes-setup, the program for jobs that need its rights but not its
 * life: they run before the first box. It is executed with no argument, an empty environment
 * and these descriptors; all others are closed or /dev/null. The order is one struct
 * setup_order in a pipe. The exit status is 0 or an errno. */

#include "proto/spawn.h"

#include <stdint.h>

enum setup_fd {
    SETUP_ORDER_FD = 3,
    SETUP_RESULT_FD, /* SETUP_PROBE: a pipe for one struct setup_probed */
    SETUP_GO_FD,     /* SETUP_MAP_IDS: a pipe; one byte says that the namespace exists */
    SETUP_END_FD,
    SETUP_FD_COUNT = SETUP_END_FD - SETUP_ORDER_FD,
};

enum setup_job {
    SETUP_PROBE = 1, /* tries what boxes need, for `hermes doctor` */
    SETUP_MAP_IDS, /* maps the subordinate ids of a rootless spawner into its user namespace */
};

struct setup_order {
    uint32_t protocol; /* SPAWN_PROTOCOL */
    uint32_t job;      /* enum setup_job */
    int32_t pid;       /* SETUP_MAP_IDS: the spawner, and its ids outside the namespace */
    uint32_t uid;
    uint32_t gid;
};

/* 0, or negative errno of the attempt that failed. Features that hermes-setup does not try are
 * 0. */
struct setup_probed {
    int32_t reason[FEATURE_COUNT];
};
