/* SPDX-License-Identifier: Apache-2.0 */

/* Allocation that does not fail. Running out of memory for a few bytes of our own leaves
 * nothing sensible to do, so the program ends at once, with one line and the exit status that
 * means "Hermes itself failed". No core file: a privileged program's memory belongs nowhere. */

#include "base/alloc.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static _Noreturn void out_of_memory(void)
{
    static const char line[] = "hermes: out of memory\n";

    ssize_t n = write(STDERR_FILENO, line, sizeof(line) - 1);
    (void)n;    /* a failed write cannot be reported */
    _exit(125); /* Hermes itself failed */
}

/* malloc(0) may return NULL without having failed; one byte never does. */
static size_t at_least_one(size_t size)
{
    return size > 0 ? size : 1;
}

void *xmalloc(size_t size)
{
    void *p = malloc(at_least_one(size));
    if (!p)
        out_of_memory();
    return p;
}

void *xcalloc(size_t count, size_t size)
{
    void *p = calloc(at_least_one(count), at_least_one(size));
    if (!p)
        out_of_memory();
    return p;
}

void *xreallocarray(void *ptr, size_t count, size_t size)
{
    void *p = reallocarray(ptr, at_least_one(count), at_least_one(size));
    if (!p)
        out_of_memory();
    return p;
}

char *xstrdup(const char *s)
{
    size_t size = strlen(s) + 1;
    return memcpy(xmalloc(size), s, size);
}

char *xstrndup(const char *s, size_t max)
{
    size_t len = strnlen(s, max);
    char *p = xmalloc(len + 1);

    memcpy(p, s, len);
    p[len] = '\0';
    return p;
}

char *xasprintf(const char *fmt, ...)
{
    char *p = NULL;
    va_list args;

    va_start(args, fmt);
    int len = vasprintf(&p, fmt, args);
    va_end(args);
    if (len < 0)
        out_of_memory();
    return p;
}

void *xgrow(void *items, size_t count, size_t size)
{
    if (count != 0 && (count & (count - 1)) != 0)
        return items;
    return xreallocarray(items, count != 0 ? count * 2 : 1, size);
}
