/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Checks of what the holder of the control socket sends after the seal. The holder may be
 * hostile. */

#include "spawn/box.h"

/* Whether a request for a box and its descriptors stay within the sealed table. */
bool request_ok(
    const struct spawner *s, const struct spawn_box *r, const int *fds, unsigned fd_count);

/* Descriptors of COMMAND_RESTART: package, stdout, stderr, channel. */
bool request_restart_ok(const int *fds, unsigned fd_count);
bool request_files_ok(const int *fds, unsigned fd_count); /* COMMAND_FILES: a stream socket */

/* Descriptors of COMMAND_TERMINAL: a stream socket, a package. */
bool request_terminal_ok(const int *fds, unsigned fd_count);

/* Descriptors of COMMAND_FORK: the new box's socket, stdout, stderr, channel. */
bool request_fork_ok(const int *fds, unsigned fd_count);

/* Whether fd is a pipe on pipefs. Pipes are the only files whose owner the spawner changes, and
 * stdout and stderr must be pipes. A server that was taken over could send any other file. */
bool request_is_pipe(int fd);
