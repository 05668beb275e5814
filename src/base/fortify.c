/* SPDX-License-Identifier: Apache-2.0 */

/* Fortified names for musl. Debian's libjansson.a and libnettle.a are compiled for glibc, but
 * `hermes` is linked with musl. Their calls have the same ABI in both libraries, with one
 * exception: where a buffer's size is known, glibc's headers turn ordinary calls into __*_chk
 * functions, which musl lacks. This file defines those that the two libraries use. It has no
 * header: no source of Hermes calls them. */

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* NOLINTBEGIN(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp) */
char *__strncpy_chk(char *to, const char *from, size_t size, size_t room);
int __vsnprintf_chk(
    char *to, size_t size, int flag, size_t room, const char *format, va_list args);
int __snprintf_chk(char *to, size_t size, int flag, size_t room, const char *format, ...);
int __fprintf_chk(FILE *to, int flag, const char *format, ...);

char *__strncpy_chk(char *to, const char *from, size_t size, size_t room)
{
    if (size > room)
        abort();
    return strncpy(to, from, size);
}

int __vsnprintf_chk(
    char *to, size_t size, int flag, size_t room, const char *format, va_list args)
{
    if (size > room)
        abort();
    return vsnprintf(to, size, format, args);
}

int __snprintf_chk(char *to, size_t size, int flag, size_t room, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int len = __vsnprintf_chk(to, size, flag, room, format, args);
    va_end(args);
    return len;
}

int __fprintf_chk(FILE *to, int flag, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int len = vfprintf(to, format, args);
    va_end(args);
    return len;
}
/* NOLINTEND(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp) */
