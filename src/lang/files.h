/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Files that a run receives, makes or returns: a name and its bytes. */

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

struct run_file {
    char *name; /* a relative path in which str_name_problem() finds no fault */
    char *content;
    size_t size;
    bool executable;
    size_t mapped_size; /* > 0: content is a mapping of this many bytes, to be unmapped */
    bool borrowed;      /* content points into the list's backing */
    bool mounted;       /* a mount of the run shows the file: it is not copied into the box */
    const char *error;  /* why a collected file has no content: "not_regular", "too_large",
                           "unreadable", "bad_name"; else NULL */
};

struct run_files {
    struct run_file *items;
    size_t count;
    void *backing; /* owned bytes that the borrowed contents point into, or NULL */
};
/* Takes content and copies name. */
void run_files_add(
    struct run_files *files, const char *name, char *content, size_t size, bool executable);
/* The same with content that the caller owns and keeps until the list is freed. */
void run_files_lend(
    struct run_files *files, const char *name, const struct run_file *lender, bool executable);
struct run_file *run_files_find(const struct run_files *files, const char *name);
/* -EINVAL with field `files` when a name is invalid by str_name_problem(), when two files have
 * the same name, or when a file stands where another one needs a directory. run_plan_make()
 * checks every run, whichever front door it came through. */
int run_files_check(const struct run_files *files, struct err *err);
/* Removes the files that have the name of one in `named`. */
void run_files_remove(struct run_files *files, const struct run_files *named);
void run_files_done(struct run_files *files);
