/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What a process does between fork() and exec(), and the end of a child. */

#include <sys/types.h>

/* Resets all signals to their defaults and blocks none, also those that the C library keeps for
 * itself. Ignored signals survive exec. */
void process_reset_signals(void);

/* As root: becomes this user for good, without supplementary groups. As anybody: gives up all
 * capabilities and sets no_new_privs. Returns 0 or negative errno; the caller then exits. */
int process_drop(uid_t uid, gid_t gid);

/* Waits for the end of a child, kills it after timeout_ms, and reaps it. */
void process_await(pid_t pid, int timeout_ms);
