/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Sends and receives packets with descriptors over a SOCK_SEQPACKET socket. */

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* The most descriptors in one packet. The kernel allows 253. */
enum { FDPASS_MAX = 48 };

/* Sends one packet. The sender keeps its descriptors. Returns 0 or negative errno.
 * fdpass_send_now() returns -EAGAIN instead of waiting for room. */
int fdpass_send(int socket, const void *data, size_t size, const int *fds, unsigned fd_count);
int fdpass_send_now(
    int socket, const void *data, size_t size, const int *fds, unsigned fd_count);

/* Closes descriptors that a stranger sent and that are not used. close() of a TCP socket can
 * wait for the other machine, for as long as the stranger has set; this does not. */
void fdpass_drop(int *fds, unsigned count);

/* Whether the other end is closed. An empty packet looks like that to fdpass_receive(). */
bool fdpass_is_closed(int socket);

/* Waits for a packet. The caller owns its descriptors, at most `max`. Returns the length of the
 * packet, 0 at the end of the socket, -EMSGSIZE when data or descriptors did not fit (then all
 * descriptors are closed), or another negative errno. fdpass_receive_now() returns -EAGAIN
 * instead of waiting. */
ssize_t fdpass_receive(
    int socket, void *data, size_t size, int *fds, unsigned max, unsigned *ret_count);
ssize_t fdpass_receive_now(
    int socket, void *data, size_t size, int *fds, unsigned max, unsigned *ret_count);
