/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Finds what a user probably meant by a misspelt name. */

#include <stddef.h>

/* One candidate after another. Keeps the nearest name within two edits (insert, delete,
 * replace, swap of two neighbours), and within one edit when the word has fewer than four
 * letters. */
struct nearest {
    const char *word;
    const char *name; /* the best so far, or NULL; borrowed */
    size_t distance;
};
void nearest_try(struct nearest *n, const char *name);
