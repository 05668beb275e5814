/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What Hermes must know of a Java file before javac sees it: which class to start and what the
 * file must be called. */

#include <stdbool.h>
#include <stddef.h>

struct java_source {
    char *package;     /* "a.b", or NULL */
    char *public_type; /* name of the public top-level type, or NULL */
    char *main_type;   /* first top-level type with a method `void main(`, or NULL */
    char *first_type;  /* first top-level type, or NULL */
};

/* Reads the text as far as it can; source that does not compile gives whatever was found, and
 * javac will say the rest. */
void java_source_scan(const char *text, size_t len, struct java_source *ret);
void java_source_done(struct java_source *source);
