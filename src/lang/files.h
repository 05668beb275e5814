/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Files that a run is given, makes or returns: a name and its bytes. */

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

struct run_file {
    char *name; /* valid by str_name_problem() */
    char *content;
    size_t size;
    bool executable;
    size_t mapped_size; /* content is a mapping of this size, not allocated; else 0 */
    bool borrowed;      /* content lies in the list's backing */
    bool mounted;       /* one of the run's mounts shows it: it is not copied into the box */
    const char
        *error; /* of a collected file: "not_regular", "too_large", "unreadable"; else NULL */
};

struct run_files {
    struct run_file *items;
    size_t count;
    void *backing; /* owned bytes that borrowed contents point into, or NULL */
};
/* Takes content and copies name. */
void run_files_add(
    struct run_files *files, const char *name, char *content, size_t size, bool executable);
struct run_file *run_files_find(const struct run_files *files, const char *name);
/* -EINVAL with field `files` when a name is none by str_name_problem(), two have one name, or
 * one is where another needs a directory. The engine asks for every run, whichever the front
 * door. */
int run_files_check(const struct run_files *files, struct err *err);
void run_files_done(struct run_files *files);
