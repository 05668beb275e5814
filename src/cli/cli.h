/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The commands of the program `hermes`. Each has a file and a row in main.c. */

#include "base/err.h"

enum { EXIT_USAGE = 2, EXIT_HERMES = 125 };

int cmd_run(int argc, char **argv);
int cmd_judge(int argc, char **argv);
int cmd_verify(int argc, char **argv);
int cmd_serve(int argc, char **argv);
int cmd_session(int argc, char **argv);
int cmd_doctor(int argc, char **argv);
int cmd_selftest(int argc, char **argv);
int cmd_runtimes(int argc, char **argv);
int cmd_bench(int argc, char **argv);

/* Prints "hermes COMMAND: message" and returns the exit status of the error code. */
int cli_fail(const char *command, const struct err *err);

/* Option rows that several commands share. */
#define CLI_MIN_LEVEL(key)                                                                     \
    "min-level", key, "LEVEL", "least isolation: full, strong (default), process"
#define CLI_NO_CACHE(key) "no-cache", key, NULL, "compile even if the same was compiled before"

/* Parses the value of --min-level. Ends the program when it is invalid. */
unsigned cli_min_level(const char *command, const char *value);

/* Executes the command again in a delegated control group if that is possible and needed;
 * otherwise returns. argv[0] is the command's name. */
void cli_delegate(int argc, char **argv);

/* Blocks SIGINT, SIGTERM and SIGHUP, also in threads made later. Returns a descriptor that
 * becomes readable when one comes, so that boxes are ended and everything is cleaned up. */
int cli_catch_signals(void);
