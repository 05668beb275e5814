/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Helpers for request bodies: JSON from strangers. */

#include "base/err.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Parses a request body: an object, at most 64 levels deep, no duplicate keys, valid UTF-8. The
 * caller owns *ret. -EINVAL when the body is JSON but not an object, else -EBADMSG. */
int json_run_parse(const char *text, size_t len, json_t **ret, struct err *err);

/* The same for a value of any type. On failure *ret_at is the offset of the byte at fault. */
int json_run_parse_any(
    const char *text, size_t len, json_t **ret, size_t *ret_at, struct err *err);

/* Refuses an object with a field that is in neither list. Both end with NULL; `more` may be
 * NULL. */
int json_known(
    const json_t *object, const char *const *names, const char *const *more, struct err *err);

/* An error as every answer has it: code, message and, if known, field. The caller owns it. */
json_t *json_error(const struct err *err);

/* Whether the value is a whole number, which may be written 5 or 5.0, in every request alike.
 * One beyond 64 bits becomes the largest or the smallest: it is out of any range. */
bool json_whole(const json_t *value, int64_t *ret);
