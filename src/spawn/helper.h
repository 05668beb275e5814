/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Programs that the spawner executes: hermes-fork (proto/copy.h), hermes-setup (proto/setup.h),
 * and the interpreters of zygotes. */

#include "proto/setup.h"

/* Opens the program `name` beside our own. Call it while the host's paths still lead there.
 * Returns a descriptor or negative errno. */
int helper_open(const char *name);

/* In a child that will execute a program: moves fds[i] to descriptor 3 + i, a negative one as
 * /dev/null, and closes all others from 3 on. They stay open over exec, but not those from
 * number `cloexec_from` of the list on. */
int helper_arrange_fds(const int *fds, unsigned count, unsigned cloexec_from);

/* In a child: executes the program with these descriptors from 3 on, no arguments and an empty
 * environment. Returns negative errno. */
int helper_exec(int program_fd, const char *name, const int *fds, unsigned count);

/* Starts hermes-setup; fds are those of proto/setup.h without the order. Returns its pid.
 * helper_wait(): waits for its end and returns 0 or its error. */
int helper_start(int program_fd, const struct setup_order *order, int fds[SETUP_FD_COUNT]);
int helper_wait(int pid);

/* SETUP_PROBE: waits for the result. */
int helper_probe(int program_fd, struct setup_probed *ret);
