/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Which processes serve sessions on backends, and for which key. */

#include "proto/place.h"

#include <sys/types.h>

enum { SLOTS_MAX = 256 };

struct slot {
    pid_t pid;     /* 0: free */
    int server_fd; /* pidfd of the process that asked for it */
    char owner[PLACE_ID];
};

struct slots {
    struct slot items[SLOTS_MAX];
    unsigned count; /* that are not free */
};

/* A free slot for a key, or NULL. A key gets one while more are free than it has, so that the
 * sessions of one key, also those that are slow to end, leave room for others. "" stands for
 * every caller without a key. */
struct slot *slots_find(struct slots *slots, const char *owner);
/* Takes server_fd, a pidfd. */
void slots_take(
    struct slots *slots, struct slot *slot, pid_t pid, const char *owner, int server_fd);
void slots_leave(struct slots *slots, pid_t pid);
/* Ends the processes whose server is gone. */
void slots_end_orphans(struct slots *slots);
