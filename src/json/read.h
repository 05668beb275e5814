/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The reader of strangers' JSON, by RFC 8259. jansson holds the values, but does not read them:
 * it goes through a string byte by byte, and requests carry whole files in strings (75 MB a
 * second; 0.4 ms for a program of 20 kB). */

#include "base/err.h"

#include <jansson.h>
#include <stddef.h>

/* At most that deep, and that many commas. */
enum { JSON_READ_DEPTH = 64, JSON_READ_VALUES = 100000 };

struct json_problem {
    const char *text; /* static */
    size_t at;        /* the byte at which what is wrong begins */
};

/* A value of any type. Refused: a name twice in one object, text that is not valid UTF-8, half
 * of a surrogate pair, whole numbers beyond 64 bits, numbers beyond a double, NUL in a name. A
 * string may have NUL in it. NULL when there is a problem; the caller owns the value. */
json_t *json_read(const char *text, size_t len, struct json_problem *ret);

/* How many bytes the value of a text takes at most, or what is read of it before it is refused.
 * ERR_INVALID when it is deeper than that, or has more values; what is malformed is left to the
 * reader. */
int json_read_weigh(const char *text, size_t len, size_t *ret, struct err *err);
