/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* The number of leading bytes that JSON strings contain as they are: ASCII other than control
 * characters, quote and backslash. Tested eight at a time: each of the four tests sets the
 * highest bit of a byte that is not plain. It may also set it in a byte above such a byte,
 * which does no harm: the loop only asks whether any bit is set. */
static inline size_t json_plain_prefix(const char *s, size_t len)
{
    const uint64_t ones = 0x0101010101010101u;
    size_t i = 0;
    for (uint64_t word; len - i >= sizeof(word); i += sizeof(word)) {
        memcpy(&word, s + i, sizeof(word));
        uint64_t quote = word ^ ones * '"';
        uint64_t slash = word ^ ones * '\\';
        if (((word - ones * ' ') | word | (quote - ones) | (slash - ones)) & ones * 0x80)
            break;
    }
    while (i < len && (unsigned char)s[i] >= ' ' && (unsigned char)s[i] < 0x80 && s[i] != '"' &&
           s[i] != '\\')
        i++;
    return i;
}
