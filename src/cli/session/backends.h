/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* `hermes exec` and `hermes backends`. Both return the exit status or negative errno. */

#include "cli/session/client.h"

int backend_exec_run(const struct client *client, int argc, char **argv, struct err *err);
int backend_list_run(const struct client *client, int argc, char **argv, struct err *err);
