/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* `hermes run --url`: the same command line, output and exit status, but on a server. */

#include "cli/session/client.h"

/* Returns the exit status, or negative errno with err. `client` has the key; the command line
 * has the address. */
int remote_run(const struct client *client, int argc, char **argv, struct err *err);
