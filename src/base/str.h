/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Strict parsing: the whole string must be the value; no leading or trailing space, no sign
 * where none belongs, no overflow, no locale. All return 0, -EINVAL or -ERANGE. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

int str_parse_u64(const char *s, uint64_t *ret_value);
int str_parse_i64(const char *s, int64_t *ret_value);
int str_parse_u32(const char *s, uint32_t *ret_value);

/* true, 1, yes, on, or their opposites; capitals are the same as small letters. */
int str_parse_bool(const char *s, bool *ret_value);

/* "256m", "64k", "1g", "1.5g", "2t", "1048576", optional b or ib ("64MiB"); case-insensitive,
 * powers of 1024. Parts of a byte are rounded up. */
int str_parse_size(const char *s, uint64_t *ret_bytes);

/* "2s", "500ms", "1.5s", "1m", "1h"; a bare number is seconds. Parts of a millisecond are
 * rounded up, so that a limit which is not 0 never becomes 0. */
int str_parse_duration_ms(const char *s, uint64_t *ret_ms);

/* NULL equals NULL only, and has no prefix or suffix. */
bool str_eq(const char *a, const char *b);
bool str_has_prefix(const char *s, const char *prefix);
bool str_has_suffix(const char *s, const char *suffix);

/* Whether a list with commas or spaces between its words has this one. It has no empty words.
 */
bool str_list_has(const char *list, const char *word);

/* The same for a list in which * stands for every word. */
bool str_list_covers(const char *list, const char *word);

/* Writes `len` bytes as lower-case hexadecimal digits, two each, and a NUL. */
void str_hex(const void *bytes, size_t len, char *to);

/* Joins the parts with `sep` between them; the caller frees. */
char *str_join(const char *const *parts, size_t count, const char *sep);

/* A word as a shell takes it: in quotes when a shell reads it as anything else, so that words
 * in one line are told apart. The caller frees. */
char *str_shell_word(const char *word);

/* Checks the name of a file in a box. It must be relative and valid UTF-8, without empty, "."
 * or ".." components, NUL, control characters or backslashes; at most 255 bytes a component,
 * 4096 bytes in all and 32 levels. `len` counts the bytes, so that an embedded NUL is seen.
 * Returns NULL when the name is valid, else a short reason. */
const char *str_name_problem(const char *name, size_t len);

/* Shell-style match of a whole relative path: `*` and `?` stop at '/', `**` does not, a leading
 * "**" + "/" also matches no directory at all, `[a-z]`, `[!x]`; `\` quotes. `?` and a class
 * match one code point. The time is at most proportional to the product of both lengths. A
 * pattern of more than STR_GLOB_MAX bytes matches nothing. */
enum { STR_GLOB_MAX = 4096 };
bool str_glob_match(const char *pattern, const char *path);
