/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Checks of what the holder of the control socket sends after the seal. The holder may be
 * hostile. */

#include "spawn/box.h"

/* Whether a request for a box and its descriptors stay within the sealed table. */
bool request_ok(
    const struct spawner *s, const struct spawn_box *r, const int *fds, unsigned fd_count);

/* The same for a request for an image: its descriptor is a socket. */
bool request_image_ok(
    const struct spawner *s, const struct spawn_image *i, const int *fds, unsigned fd_count);

/* Descriptors of COMMAND_RESTART: package, stdout, stderr, channel. */
bool request_restart_ok(const int *fds, unsigned fd_count);
bool request_files_ok(const int *fds, unsigned fd_count); /* COMMAND_FILES: a stream socket */

/* Descriptors of COMMAND_TERMINAL: a stream socket, a package. */
bool request_terminal_ok(const int *fds, unsigned fd_count);

/* COMMAND_NETWORK: a channel. COMMAND_IMAGE: a socket. */
bool request_network_ok(const int *fds, unsigned fd_count);

/* Limits of COMMAND_FORK, if it has some, and its descriptors: the new box's socket, stdout,
 * stderr, channel, and perhaps the stdin of a run. */
bool request_fork_ok(const struct spawner *s, const struct spawn_command *command,
    const int *fds, unsigned fd_count);

/* Whether fd is a pipe on pipefs. Pipes are the only files whose owner the spawner changes, and
 * stdout and stderr must be pipes. A server that was taken over could send any other file. */
bool request_is_pipe(int fd);
