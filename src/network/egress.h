/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* hermes-egress of one engine (`hermes run --network ...`). A server has the one that the
 * monitor starts and restarts. */

#include "base/err.h"
#include "proto/network.h"

#include <sys/types.h>

/* Starts the program in our network namespace, as a user of its own when we are root, and sends
 * it the ceiling. Returns the descriptor for spawner_add_egress(), or negative errno. The
 * program ends when all copies of that descriptor, and of the descriptors sent over it, are
 * closed. */
int egress_start(const struct network_ceiling *ceiling, pid_t *ret_pid, struct err *err);
