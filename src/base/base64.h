/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Base64 by RFC 4648, with padding. */

#include <stddef.h>

/* The number of characters that encode `len` bytes. */
size_t base64_size(size_t len);

/* Writes base64_size(len) characters, without a NUL. */
void base64_encode(const void *data, size_t len, char *to);

/* The same as a string, which the caller frees. */
char *base64_text(const void *data, size_t len);

/* Decodes; no other characters are allowed. The caller frees *ret, which ends with a NUL.
 * -EINVAL when the text is not base64, -ENOMEM when memory is short. */
int base64_decode(const char *text, size_t len, char **ret, size_t *ret_len);
