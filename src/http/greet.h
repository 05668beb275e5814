/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Tells a person at a terminal that the server is ready: addresses, keys, a first command.
 * Prints nothing to pipes and files. */

struct state;

void greet(const struct state *state, const int *listen_fds, unsigned count);
