/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Whether a network namespace can be told from a new one. */

#include <stdbool.h>

/* Remembers what the caller's namespace, which is new, looks like. */
int network_learn(void);

/* Whether the caller's namespace looks the same: it has no socket, not even one that waits for
 * its last packets, and nothing was ever counted in it. */
bool network_is_fresh(void);
