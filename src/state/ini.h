/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Lines of `key = value` below `[section]`, strictly: what is neither that nor a comment (# or
 * ; at the beginning of a line) nor empty is a problem. Values are one line, without the space
 * around them. The same reader takes a .env file: `export KEY="value"`. */

#include <stddef.h>

enum ini_form {
    INI_CONFIG, /* sections, free spaces around `=` */
    INI_ENV,    /* KEY=value, optional `export `, optional quotes, no sections */
};

/* One entry; section is "" before the first one. All strings are borrowed for the call. */
typedef void ini_entry_fn(
    void *context, unsigned line, const char *section, const char *key, const char *value);

/* A line that makes no sense. */
typedef void ini_problem_fn(void *context, unsigned line, const char *why);

/* Reads all of the text whatever it finds. */
void ini_read(const char *text, size_t len, enum ini_form form, ini_entry_fn *entry,
    ini_problem_fn *problem, void *context);
