/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A packet with descriptors over a SOCK_SEQPACKET socket. */

#include <stddef.h>
#include <sys/types.h>

enum { FDPASS_MAX = 40 };

/* The descriptors stay the sender's. Returns 0 or negative errno. The second does not wait for
 * room: -EAGAIN. */
int fdpass_send(int socket, const void *data, size_t size, const int *fds, unsigned fd_count);
int fdpass_send_now(
    int socket, const void *data, size_t size, const int *fds, unsigned fd_count);

/* Waits for a packet; its descriptors, at most `max`, are the caller's. Returns the packet's
 * length, 0 at the end of the socket, -EMSGSIZE when there was more in it than fits (all
 * descriptors are closed then), or another negative errno. The second does not wait: -EAGAIN.
 */
ssize_t fdpass_receive(
    int socket, void *data, size_t size, int *fds, unsigned max, unsigned *ret_count);
ssize_t fdpass_receive_now(
    int socket, void *data, size_t size, int *fds, unsigned max, unsigned *ret_count);
