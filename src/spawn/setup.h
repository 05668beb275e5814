/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The spawner's side of hermes-setup (proto/setup.h). */

#include "proto/setup.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct setup {
    int program_fd; /* the program, or negative errno */
    int socket;     /* -1 while it does not run */
    pid_t pid;      /* 0 while it does not run */
};

/* Starts hermes-setup, unless it runs. Returns 0 or negative errno. */
int setup_start(struct setup *setup);

/* Sends one order and waits for the answer, with at most `max` descriptors. Starts hermes-setup
 * if need be. Returns 0 or negative errno: that of the answer, or -EIO when there was none.
 * After a failure there are no descriptors, and *ret names the step and the detail. */
int setup_call(struct setup *setup, const void *order, size_t size, struct setup_answer *ret,
    int *fds, unsigned max, unsigned *ret_count);

/* The same with descriptors for the order; the caller keeps them. */
int setup_call_with(struct setup *setup, const void *order, size_t size, const int *with,
    unsigned with_count, struct setup_answer *ret, int *fds, unsigned max, unsigned *ret_count);

/* Ends hermes-setup, if it runs, and waits for it. */
void setup_end(struct setup *setup);

/* Has hermes-setup remove the remains of dead spawners, and end. Does not wait for that:
 * setup_reap() does, or only looks; it returns whether it goes on. */
void setup_finish(struct setup *setup);
bool setup_reap(struct setup *setup, bool waits);
