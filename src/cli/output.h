/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Writing results to stdout. A command whose output is lost must fail. */

#include <jansson.h>

/* Prints a value over several lines and takes it. `flags` are further flags of jansson. */
void output_json(json_t *value, size_t flags);

/* The exit status of a command (`hermes run`): `status`, unless stdout could not be written. */
int output_end(const char *command, int status);

/* The exit status after a failed write, with a message. When the reader has left (EPIPE) there
 * is no message, as when SIGPIPE ends other programs. */
int output_fail(const char *command, int error);
