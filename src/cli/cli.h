/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Commands of the program `hermes`: one file each, one row each in main.c. */

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

/* Prints "hermes COMMAND: message" and returns the exit status of the error's code. */
int cli_fail(const char *command, const struct err *err);

/* Rows of options that several commands have. */
#define CLI_MIN_LEVEL(key)                                                                     \
    "min-level", key, "LEVEL", "least isolation: full, strong (default), process"
#define CLI_NO_CACHE(key) "no-cache", key, NULL, "compile even if the same was compiled before"

/* The value of the first one; ends the program when it is none. */
unsigned cli_min_level(const char *command, const char *value);

/* Executes the command again in a delegated control group where one can be had and is needed;
 * returns otherwise. argv[0] is the command's name. */
void cli_delegate(int argc, char **argv);

/* Blocks SIGINT, SIGTERM and SIGHUP (in threads made later too) and returns a descriptor that
 * becomes readable when one comes: the boxes are ended and everything is cleaned up. */
int cli_catch_signals(void);
