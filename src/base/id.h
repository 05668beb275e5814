/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Random identifiers. */

#include <stddef.h>

enum { ID_MAX = 40 };

/* Fills out with prefix and 26 characters of Crockford base32 (130 random bits): "run_0f3…".
 * The prefix has at most 12 bytes. Aborts when the kernel has no randomness. */
void id_make(const char *prefix, char out[ID_MAX]);

/* Fills with random bytes from getrandom(2). */
void id_random(void *out, size_t len);
