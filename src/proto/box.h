/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the spawner and the inside of a box agree on: ids, control groups, and the messages on
 * the link, a socket between the spawner and box init. */

#include <stdint.h>

enum {
    BOX_INIT_ID = 0, /* uid and gid of box init, inside the box */
    BOX_PAYLOAD_ID = 1000,
    CGROUP_MAX_TREES = 5, /* hierarchies that a box may be in */
};

/* What the box tells the spawner on the link; the payload cannot, its copy closes at exec. */
enum link_kind {
    LINK_FAILED = 1,
    LINK_START,
    LINK_EXIT,
    LINK_PARKING, /* a program that will wait for its job is about to be executed */
    LINK_READY,   /* it waits */
    LINK_INTERRUPTED,
    LINK_KNOWN, /* of a fork: the process is what it should be, and in its own group */
};

struct link_record {
    uint32_t kind;
    uint32_t step;      /* LINK_FAILED */
    int32_t error;      /* LINK_FAILED: negative errno */
    int32_t status;     /* LINK_EXIT: wait status of the payload; LINK_FAILED in STEP_MOUNT: the
                           number of the shared directory, from 1 on, or 0 */
    uint32_t disk_full; /* LINK_EXIT */
    uint32_t is_empty;  /* LINK_EXIT: nothing but init is left in the box */
    uint64_t ns;        /* CLOCK_MONOTONIC */
    uint64_t cpu_ns;    /* LINK_START: used by the set-up; LINK_EXIT: of the reaped children */
    uint64_t rss_bytes; /* LINK_EXIT: largest of the reaped children */
};

/* What the spawner tells the init of a session, with descriptors: those of COMMAND_RESTART, or
 * a socket for a helper that serves files (files.h), or those of a terminal (terminal.h). */
enum link_order_kind {
    ORDER_RESTART = 1,
    ORDER_FILES,
    ORDER_JOIN,     /* with control groups to move to: the program has forks */
    ORDER_TERMINAL, /* with its socket, its job, and control groups for it to enter */
};

struct link_order {
    uint32_t kind;
    uint32_t reserved;
    uint64_t room_bytes; /* ORDER_FILES: memory that the box may still use */
};
