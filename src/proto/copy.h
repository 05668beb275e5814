/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* How hermes-spawn starts hermes-fork, the program that makes one copy of a live session, or
 * serves the files or a terminal of a copy. The spawner forks, and the child executes the
 * program with no argument, an empty environment and these descriptors; all others are closed.
 * Standard input, output and error are /dev/null. What a job does not use is /dev/null, too.
 *
 * The order is one struct copy_order in a pipe. hermes-fork trusts it: the spawner has checked
 * every number. Nothing in it is a byte of a stranger. */

#include "proto/box.h"
#include "proto/spawn.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

enum copy_fd {
    COPY_ORDER_FD = 3,
    COPY_LIFE_FD,   /* life file of the spawner, see inside_follow() */
    COPY_SOCKET_FD, /* COPY_MAKE: where the copy says hello. COPY_FILES: the file socket.
                       COPY_TERMINAL: the terminal socket */
    COPY_REPORT_FD, /* COPY_MAKE: takes struct link_record: LINK_LIMIT, LINK_KNOWN, then
                       LINK_START, of a run with its places, or LINK_FAILED */
    COPY_PIDFD,     /* COPY_MAKE: box init of the family. COPY_FILES, COPY_TERMINAL: the copy's
                       process */
    COPY_PARENT_PIDFD, /* COPY_MAKE: the original's process, if the original is a copy, too */
    COPY_PACKAGE_FD,   /* COPY_TERMINAL: package with the words of the shell */
    COPY_LEAF_FD,      /* the copy's control group, one directory per tree */
    COPY_PARENT_LEAF_FD = COPY_LEAF_FD + CGROUP_MAX_TREES, /* COPY_MAKE: the original's */
    COPY_END_FD = COPY_PARENT_LEAF_FD + CGROUP_MAX_TREES,
    COPY_FD_COUNT = COPY_END_FD - COPY_ORDER_FD,
};

enum { COPY_PLACES = 3 }; /* file systems of its own */

/* COPY_FILES and COPY_TERMINAL run in the pid namespace of the copy. */
enum copy_job { COPY_MAKE = 1, COPY_FILES, COPY_TERMINAL };

struct copy_order {
    uint32_t protocol; /* SPAWN_PROTOCOL */
    uint32_t job;      /* enum copy_job */
    uint32_t tree_count;
    struct {
        uint32_t use; /* TREE_ bits of cgroup.h */
        uint32_t is_v2;
    } trees[CGROUP_MAX_TREES];
    uint32_t landlock_abi;
    uint32_t flags; /* BOX_ bits of the session */
    struct spawn_limits limits;
    /* COPY_MAKE only: */
    uint32_t number;   /* the copy's id, above that of the session's payload */
    uint32_t lineage;  /* bits of its own number and those of its ancestors */
    uint32_t uid;      /* the copy's id on the host */
    uint32_t is_alone; /* it gets an empty network namespace, and its own for IPC */
    uint32_t is_run;   /* it has limits of its own; is_alone is set, too */
    uint32_t reserved;
    uint64_t ends[4]; /* inodes of its stdout, stderr, channel, and of the hello socket */
};

/* Sets how many user namespaces the box and its copies may make: none, or while a copy is made
 * 128, which is enough for all copies and for dead ones that are still being removed. */
static inline int copy_limit_users(int users_fd, bool is_raised)
{
    const char *text = is_raised ? "128" : "0";
    ssize_t n = pwrite(users_fd, text, strlen(text), 0);
    return n < 0 ? -errno : n == (ssize_t)strlen(text) ? 0 : -EIO;
}
