/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The head of a message of HTTP/1.1, whole and in memory: its first line and its headers. What
 * the standard lets a lenient reader repair is refused. */

#include "inject/body.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    HEAD_MAX = 32 << 10, /* bytes */
    HEAD_LINES = 128,    /* headers */
};

struct head_line {
    const char *name;
    size_t name_len;
    const char *value; /* without spaces around it */
    size_t value_len;
};

/* Points into the text. */
struct head {
    const char *first; /* the first line, without CR LF */
    size_t first_len;
    struct head_line lines[HEAD_LINES];
    size_t count;
    bool has_length, is_chunked; /* set by head_frame() */
    uint64_t length;
};

/* The length of the head that the text begins with, with the empty line; 0 when its end has not
 * come yet. */
size_t head_size(const char *text, size_t len);

/* Splits a whole head of this size. Returns 0 or -EBADMSG. */
int head_split(struct head *head, const char *text, size_t len);

/* Reads Content-Length and Transfer-Encoding. Returns 0; -EBADMSG when they are malformed,
 * repeated or both there; -ENOTSUP for a coding other than `chunked`. */
int head_frame(struct head *head);

/* Whether the line has this name. Servers that turn '-' and '_' into the same must not read
 * what was not seen here, so the two are equal. */
bool head_is(const struct head_line *line, const char *name);
bool head_is_any(const struct head_line *line, const char *const *names);

/* The line of this name if there is exactly one; *ret_count says how many there are. */
const struct head_line *head_find(const struct head *head, const char *name, size_t *ret_count);

/* Whether the list of words in the lines of this name contains the word. */
bool head_has_word(const struct head *head, const char *name, const char *word);
