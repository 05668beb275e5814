/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Reads lines of `key = value` below `[section]`, strictly. Every line must be such an entry, a
 * section, a comment (# or ; at its beginning) or empty; anything else is a problem. Values are
 * one line, without the spaces around them. The same reader takes a .env file: `export
 * KEY="value"`. */

#include <stddef.h>

enum ini_form {
    INI_CONFIG, /* sections, free spaces around `=` */
    INI_ENV,    /* KEY=value, optional `export `, optional quotes, no sections */
};

/* Called for each entry; section is "" before the first section. All strings are borrowed for
 * the call. */
typedef void ini_entry_fn(
    void *context, unsigned line, const char *section, const char *key, const char *value);

/* Called for each line that is not valid. */
typedef void ini_problem_fn(void *context, unsigned line, const char *why);

/* Reads the whole text, also after problems. */
void ini_read(const char *text, size_t len, enum ini_form form, ini_entry_fn *entry,
    ini_problem_fn *problem, void *context);
