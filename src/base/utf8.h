/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Program output is bytes; JSON is UTF-8. */

#include <stdbool.h>
#include <stddef.h>

bool utf8_valid(const char *s, size_t len);

/* Returns a NUL-terminated copy in which every maximal invalid subpart became U+FFFD, as the
 * Unicode standard recommends and Python's errors="replace" does; NUL bytes are kept and counted
 * in *ret_len. The caller frees. */
char *utf8_repair(const char *s, size_t len, size_t *ret_len);

/* The largest n <= len such that s[0..n) does not end inside a code point. For cutting text. */
size_t utf8_floor(const char *s, size_t len);
