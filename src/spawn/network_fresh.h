/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Whether a network namespace can be told from a new one. */

#include <stdbool.h>

/* How many namespaces are remembered, and held, so that looking at one again is quick. */
enum { NETWORK_KNOWN_MAX = 32 };

/* Remembers what the caller's namespace, which is new, looks like. */
int network_learn(void);

/* Whether this one looks the same: it has no socket, not even one that waits for its last
 * packets, and nothing was ever counted in it. May leave the caller in it. */
bool network_is_fresh(int ns_fd);
