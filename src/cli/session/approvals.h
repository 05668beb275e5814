/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* `hermes approvals`: a client of /v1/approvals. */

#include "cli/session/client.h"

#define APPROVALS_COMMAND "hermes approvals"

/* argv[0] is not looked at. Returns the exit status, or negative errno with err. */
int approvals_run(const struct client *client, int argc, char **argv, struct err *err);

/* Replaces all rules with those of a file; `-` is stdin. With json, prints the answer. */
int approvals_set_rules(
    const struct client *client, const char *path, bool json, struct err *err);
