/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Interactive use of a session. */

#include "cli/session/client.h"
#include "cli/session/consent.h"
#include "cli/session/show.h"

/* Runs one piece of code and prints its results. `exec` has all fields of the request. */
int repl_exec(const struct client *client, const char *id, const json_t *exec,
    struct show *show, struct err *err);

/* Reads code from the terminal, with editing and a history in the user's state directory, or
 * from stdin when it is not a terminal. Runs each piece and prints its results until the input
 * ends or the user types `exit`. Ctrl-C interrupts the running piece. The fields of `exec` are
 * sent with every piece. With ends_session, SIGHUP and SIGTERM end the session too. `consent`
 * asks at the same terminal, or is NULL. When stdin is not a terminal, returns the exit status
 * of the last piece. */
int repl_run(const struct client *client, const json_t *session, const json_t *exec,
    bool ends_session, struct consent *consent, struct err *err);
