/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Allocation for sizes that Hermes chooses. Running out of memory ends the program with one
 * line on stderr. Sizes that a stranger chooses belong in a bounded struct buf (buf.h). */

#include <stdarg.h>
#include <stddef.h>

void *xmalloc(size_t size);
void *xcalloc(size_t count, size_t size);
void *xreallocarray(void *ptr, size_t count, size_t size);
char *xstrdup(const char *s);
char *xstrndup(const char *s, size_t max);
char *xasprintf(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Returns an array with room for one more item. The array grows at powers of two, so callers
 * keep only the count and no capacity. */
void *xgrow(void *items, size_t count, size_t size);
