/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A `hermes serve` for one command, when there is no other: on a unix socket in a new directory
 * that only this user can enter, with the backends of the caller's ~/.hermes/config.yaml. The
 * server ends when the command ends, also when the command is killed, and leaves nothing
 * behind. */

#include "base/err.h"
#include "cli/session/client.h"
#include "cli/session/own_settings.h"

#include <sys/types.h>

struct own_server {
    char dir[64];
    char unix_path[80];
    char backend[64]; /* where the command runs */
    pid_t keeper;
    int link; /* the keeper ends the server when this closes */
};

/* Whether nothing answers at the default address. */
bool own_server_is_needed(const struct client *client);

/* With lists_all the parts of the caller's file that the server does not use are printed to
 * stderr. */
int own_server_start(struct own_server *s, const struct own_wish *wish, struct err *err);
void own_server_stop(struct own_server *s);
