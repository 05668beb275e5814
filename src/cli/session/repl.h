/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Talking to a session, line by line. */

#include "cli/session/client.h"
#include "cli/session/show.h"

/* Runs one piece, with all its fields, and shows what comes of it. */
int repl_exec(const struct client *client, const char *id, const json_t *exec,
    struct show *show, struct err *err);

/* Reads code from the terminal, with editing and a history kept in the user's state directory,
 * or from stdin when that is none; runs it and shows what comes of it, until the end of the
 * input. Ctrl-C interrupts what runs. `exec` has fields that go along with every piece. Returns
 * the exit status of the last one when stdin is no terminal. */
int repl_run(
    const struct client *client, const json_t *session, const json_t *exec, struct err *err);
