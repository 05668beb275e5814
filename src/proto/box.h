/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the spawner and the inside of a box agree on: ids, the number of cgroup hierarchies, and
 * the messages on the init link, the SOCK_SEQPACKET socket between the spawner and box init. */

#include <stdint.h>

enum {
    /* uids and gids of box init and of the payload, seen from inside the box. With BOX_ROOT
     * they change places */
    BOX_INIT_ID = 0,
    BOX_PAYLOAD_ID = 1000,
    CGROUP_MAX_TREES = 5, /* most cgroup hierarchies that a box is in */
};

/* Records from the box to the spawner. Box init sends them, and so does the payload's process
 * until it executes or begins the program; then its copy of the link is closed. */
enum link_kind {
    LINK_FAILED = 1,
    LINK_START,
    LINK_EXIT,
    LINK_PARKING, /* pool box: the program that will wait for its package is about to be
                     executed */
    LINK_READY,   /* ready box: the program waits for its package */
    LINK_INTERRUPTED,
    LINK_LIMIT,  /* copy of a session: comes first, with the file of copy_limit_users() */
    LINK_KNOWN,  /* copy of a session: its process was checked and comes with a pidfd
                    (src/fork/make.c); `pid` is its number in the box */
    LINK_REAPED, /* answer to ORDER_WATCH: the process `pid` of the box has ended with `status`
                  */
};

struct link_record {
    uint32_t kind;
    uint32_t step; /* LINK_FAILED: enum spawn_step */
    int32_t error; /* LINK_FAILED: negative errno */
    /* LINK_EXIT: wait status of the payload. LINK_FAILED in STEP_MOUNT: the number of the
     * shared directory, from 1 on, or 0 */
    int32_t status;
    uint32_t disk_full; /* LINK_EXIT: /box, /tmp or /dev/shm has no free block or inode */
    uint32_t is_empty;  /* LINK_EXIT: only box init is left in the box */
    uint64_t ns;        /* CLOCK_MONOTONIC */
    uint64_t cpu_ns; /* LINK_START: CPU time of the set-up; LINK_EXIT: of the reaped children */
    uint64_t rss_bytes; /* LINK_EXIT: peak of the largest reaped child */
    uint32_t pid;       /* LINK_KNOWN, LINK_REAPED */
    uint32_t reserved;
};

/* Orders from the spawner to the box init of a session. Each comes with descriptors. */
enum link_order_kind {
    ORDER_RESTART = 1,
    ORDER_FILES, /* file socket, and cgroup.procs files of the groups that the helper joins */
    ORDER_JOIN, /* cgroup.procs files: box init moves into these groups, because the program has
                   copies */
    ORDER_TERMINAL, /* terminal socket, package, and cgroup.procs files for the shell to enter
                       (terminal.h) */
    ORDER_WATCH,    /* without descriptors: box init reports the end of the process `pid` */
};

struct link_order {
    uint32_t kind;
    uint32_t pid;        /* ORDER_WATCH: its number in the box */
    uint64_t room_bytes; /* ORDER_FILES: memory that the box may still use, in bytes */
};
