/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The end of what a command prints: results on stdout that nobody gets are a failure. */

#include <jansson.h>

/* Prints a value, which it takes, over several lines; flags of jansson may be added. */
void output_json(json_t *value, size_t flags);

/* The exit status of a command (`hermes run`) that would end with `status`: that one, unless
 * stdout could not be written. */
int output_end(const char *command, int status);

/* The status when writing failed with this errno, and a word about it: none where the reader
 * left, as other programs end by SIGPIPE. */
int output_fail(const char *command, int error);
