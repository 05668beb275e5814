/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Finds the errors and warnings in what a compiler printed, so that an editor can mark the
 * lines. The text is a stranger's: nothing here depends on it being right. */

#include <stddef.h>

enum { DIAGNOSTICS_MAX = 100 }; /* a longer list helps no reader and makes the answer large */

enum diagnostic_severity { DIAGNOSTIC_ERROR, DIAGNOSTIC_WARNING, DIAGNOSTIC_NOTE };

/* "error", "warning", "note". */
const char *diagnostic_severity_name(enum diagnostic_severity severity);

/* `file` and `text` point into the compiler's output and are not terminated. */
struct diagnostic {
    const char *file; /* a name as in the request where the compiler was given one */
    size_t file_len;
    unsigned line;   /* from 1; 0: the compiler names none */
    unsigned column; /* the same */
    enum diagnostic_severity severity;
    const char *text;
    size_t text_len; /* at most 1000 bytes */
};

/* Adds what it finds in `output` after the first `count` of `list`, and returns how many `list`
 * has then. `list` has room for DIAGNOSTICS_MAX. */
size_t diagnostics_find(
    struct diagnostic *list, size_t count, const char *output, size_t output_len);
