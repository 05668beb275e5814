/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Reads JSON that is right, fast. jansson goes through a string byte by byte, three calls for
 * each, and requests carry whole files in strings: 75 MB a second here. So the structure and
 * plain strings are read here, at ten times that, and jansson is given what has rules of its
 * own: numbers, and strings with \u or bytes beyond ASCII. */

#include "base/err.h"

#include <jansson.h>
#include <stddef.h>

/* At most that deep, and that many commas. */
enum { JSON_READ_DEPTH = 64, JSON_READ_VALUES = 100000 };

/* How many bytes the value of a text takes at most, or what is read of it before it is refused.
 * ERR_INVALID when it is deeper than that, or has more values; what is malformed is left to the
 * reader. */
int json_read_weigh(const char *text, size_t len, size_t *ret, struct err *err);

/* The value, as json_loadb() would read it with JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL |
 * JSON_DECODE_ANY. NULL when it would read none, or for other reasons: then ask it, for it also
 * says what is wrong. */
json_t *json_read(const char *text, size_t len);
