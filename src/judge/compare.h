/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Compares the output of a program with the expected text. The output is fed as it comes and
 * the expected text is read along. Memory does not grow with either: hundreds of megabytes cost
 * a few kilobytes.
 *
 * White space is space, tab, \r, \n, \v and \f; a token is anything between. */

#include <stddef.h>
#include <stdint.h>

enum compare_kind {
    COMPARE_EXACT,     /* byte for byte */
    COMPARE_TRIM,      /* white space at the end of lines and of the text does not count */
    COMPARE_TOKENS,    /* the same tokens, with any white space between them */
    COMPARE_FLOAT,     /* the same tokens; numbers may differ by a tolerance */
    COMPARE_UNORDERED, /* the same lines in any order, without white space at their ends; empty
                          lines do not count. Compared by keyed 128-bit hashes */
    COMPARE_KINDS
};
extern const char *const compare_names[COMPARE_KINDS]; /* "exact", ... */

struct compare_rule {
    enum compare_kind kind;
    double absolute; /* COMPARE_FLOAT: meeting either tolerance is enough */
    double relative;
};

/* Bytes in memory, or the whole file when fd >= 0. */
struct compare_text {
    const char *data;
    size_t size;
    int fd;
};

enum compare_answer {
    COMPARE_SAME,
    COMPARE_SPACE, /* the tokens agree, but not the white space between them */
    COMPARE_DIFFERENT,
};

struct compare;

/* `expected` is borrowed until compare_free(). */
struct compare *compare_new(
    const struct compare_rule *rule, const struct compare_text *expected);
void compare_feed(struct compare *compare, const char *data, size_t len);

/* Call after the last byte. Returns 0, or a negative errno when the expected text could not be
 * read. `why` (may be NULL) gets one line that says where the difference is and reveals nothing
 * of the expected text. */
int compare_finish(
    struct compare *compare, enum compare_answer *ret, char *why, size_t why_size);
void compare_free(struct compare *compare);
