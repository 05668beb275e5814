/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Writing results to stdout and errors to stderr. A command whose output is lost must fail. */

#include "base/err.h"

#include <jansson.h>
#include <stdio.h>

/* Prints a value over several lines and takes it. `flags` are further flags of jansson. */
void output_json(json_t *value, size_t flags);

/* The exit status of a command (`hermes run`): `status`, unless stdout could not be written. */
int output_end(const char *command, int status);

/* The exit status after a failed write, with a message. When the reader has left (EPIPE) there
 * is no message, as when SIGPIPE ends other programs. */
int output_fail(const char *command, int error);

/* From now on output_error() also prints {"error": {...}} to stdout. options_parse() calls it
 * when the command line has --json. */
void output_errors_as_json(void);

/* Prints "COMMAND: message" to stderr. */
void output_error_line(const char *command, const struct err *err);

/* output_error_line(), and JSON when the command line asked for it. Returns the exit status. */
int output_error(const char *command, const struct err *err);

/* Prints text from an untrusted program up to the end of its first line and at most `width`
 * characters, without control characters. What hides or reorders text is shown as <U+202E>. */
void output_clean(const char *text, size_t width); /* to stdout */
void output_clean_to(FILE *to, const char *text, size_t width);
