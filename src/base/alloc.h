/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Allocation whose size is ours, not a stranger's: exhaustion ends the program with one line.
 * Sizes that a stranger chooses belong in a bounded struct buf (buf.h). */

#include <stdarg.h>
#include <stddef.h>

void *xmalloc(size_t size);
void *xcalloc(size_t count, size_t size);
void *xreallocarray(void *ptr, size_t count, size_t size);
char *xstrdup(const char *s);
char *xstrndup(const char *s, size_t max);
char *xasprintf(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Room for one more item in an array that grows at powers of two: the capacity need not be
 * kept. */
void *xgrow(void *items, size_t count, size_t size);
