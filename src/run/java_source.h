/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Finds out what Hermes must know about a Java file before javac sees it: the class to start
 * and the name that the file must have. */

#include <stdbool.h>
#include <stddef.h>

struct java_source {
    char *package;     /* "a.b", or NULL */
    char *public_type; /* name of the public top-level type, or NULL */
    char *main_type;   /* first top-level type with a method `void main(`, or NULL */
    char *first_type;  /* first top-level type, or NULL */
};

/* Reads the text as far as possible. For source that does not compile it returns what it found;
 * javac reports the errors. */
void java_source_scan(const char *text, size_t len, struct java_source *ret);
void java_source_done(struct java_source *source);
