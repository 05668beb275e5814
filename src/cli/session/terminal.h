/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A shell in a session's box on the caller's terminal. It runs until the shell ends, the
 * connection ends, or the user types Ctrl-]. */

#include "cli/session/client.h"

/* Returns the exit status of the shell, 0 after Ctrl-], or negative errno with err. */
int terminal_run(const struct client *client, const char *id, struct err *err);
