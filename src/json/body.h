/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Helpers for request bodies: JSON from strangers, and base64 in it. */

#include "base/err.h"

#include <jansson.h>
#include <stddef.h>

/* Parses a request body: an object, at most 64 levels deep, no duplicate keys, valid UTF-8. The
 * caller owns *ret. -EINVAL when the body is JSON but not an object, else -EBADMSG. */
int json_run_parse(const char *text, size_t len, json_t **ret, struct err *err);

/* The same for a value of any type. On failure *ret_at is the offset of the byte at fault. */
int json_run_parse_any(
    const char *text, size_t len, json_t **ret, size_t *ret_at, struct err *err);

/* Decodes base64 with padding; no other characters are allowed. The caller frees *ret. */
int json_run_base64(const char *text, size_t len, char **ret, size_t *ret_len);
