/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the spawner takes from the holder of its sealed socket, who may be hostile. */

#include "spawn/box.h"

/* Whether a request for a box and its descriptors stay within the sealed table. */
bool request_ok(
    const struct spawner *s, const struct spawn_box *r, const int *fds, unsigned fd_count);

/* The same for what comes with COMMAND_RESTART: job, stdout, stderr, channel. */
bool request_restart_ok(const int *fds, unsigned fd_count);
bool request_files_ok(const int *fds, unsigned fd_count); /* of COMMAND_FILES */

/* And with COMMAND_TERMINAL: a socket, a job. */
bool request_terminal_ok(const int *fds, unsigned fd_count);

/* And with COMMAND_FORK: the new box's socket, stdout, stderr, channel. */
bool request_fork_ok(const int *fds, unsigned fd_count);

/* A pipe on pipefs: the only thing whose owner we change, and the only thing a box may write
 * to. A descriptor of anything else (a taken-over server could send one) is refused. */
bool request_is_pipe(int fd);
