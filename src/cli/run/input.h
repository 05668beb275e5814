/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The files of `hermes run`: the program and what lies beside it. */

#include "base/err.h"
#include "lang/files.h"

/* Reads a whole file, or stdin for "-", into *ret, which has no name yet. */
int run_input_read(const char *path, struct run_file *ret, struct err *err);

/* Adds a file and takes its content. */
int run_input_add(
    struct run_files *files, const char *name, const struct run_file *file, struct err *err);

/* Adds the file that --install wants, from beside the program, unless it is there already. */
int run_input_add_packages(
    struct run_files *files, const char *program, const char *language, struct err *err);

/* Reads and adds a file of -f: FILE or FILE:NAME. */
int run_input_add_extra(struct run_files *files, const char *text, struct err *err);
