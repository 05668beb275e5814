/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* UTF-8 checks and repair: the output of programs is bytes, but JSON is UTF-8. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define UTF8_INVALID UINT32_MAX

/* Decodes the first code point of s (len >= 1 bytes). Returns the bytes it takes, at least 1,
 * and sets *ret_code to the code point, or to UTF8_INVALID for a maximal invalid subpart. */
size_t utf8_next(const char *s, size_t len, uint32_t *ret_code);

/* Whether a character is a control character, changes the order of others, or is invisible. */
bool utf8_is_hidden(uint32_t code);

bool utf8_valid(const char *s, size_t len);

/* Returns a NUL-terminated copy in which every maximal invalid subpart became U+FFFD, as the
 * Unicode standard recommends and Python's errors="replace" does; NUL bytes are kept and
 * counted in *ret_len (may be NULL). At most three times as long; the caller frees. */
char *utf8_repair(const char *s, size_t len, size_t *ret_len);

/* The largest n <= len such that s[0..n) does not end inside a code point. For cutting text. */
size_t utf8_floor(const char *s, size_t len);
