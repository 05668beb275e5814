/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What request bodies have in common: the JSON of a stranger, and base64 in it. */

#include "base/err.h"

#include <jansson.h>
#include <stddef.h>

/* Parses any request body: an object, at most 64 levels deep, no duplicate keys, valid UTF-8.
 * The caller owns *ret. -EINVAL when it is JSON but no object, else -EBADMSG. */
int json_run_parse(const char *text, size_t len, json_t **ret, struct err *err);

/* The same for a value of any type; on failure *ret_at is the byte at fault. */
int json_run_parse_any(
    const char *text, size_t len, json_t **ret, size_t *ret_at, struct err *err);

/* Decodes base64 with padding and nothing else. The caller frees *ret. */
int json_run_base64(const char *text, size_t len, char **ret, size_t *ret_len);
