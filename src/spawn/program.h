/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Programs that the spawner executes: hermes-fork (proto/copy.h), hermes-setup (proto/setup.h),
 * hermes-network (proto/kit.h), and the interpreters of zygotes. */

#include <stddef.h>
#include <sys/types.h>

/* Opens the program `name` beside our own. Call it while the host's paths still lead there.
 * Returns a descriptor or negative errno. */
int program_open(const char *name);

/* In a child that will execute a program: moves fds[i] to descriptor 3 + i, a negative one as
 * /dev/null, and closes all others from 3 on. The first `cloexec_from` of the list stay open
 * over exec, the others do not. */
int program_arrange_fds(const int *fds, unsigned count, unsigned cloexec_from);

/* In a child: executes the program with these descriptors from 3 on, no arguments and an empty
 * environment. Returns negative errno. */
int program_exec(int program_fd, const char *name, const int *fds, unsigned count);

/* Starts the program in a child that ends with us. Its descriptor 3 is one end of a
 * SOCK_SEQPACKET pair, *ret_socket becomes the other. Returns its pid or negative errno. */
int program_start(int program_fd, const char *name, int *ret_socket);

/* Kills a program that program_start() has started, and closes the socket. Does not wait for
 * its end (orphans.h). */
void program_stop(pid_t *pid, int *socket);

/* The reading end of a pipe that holds an order of a few hundred bytes, or negative errno. */
int program_order(const void *order, size_t size);
