/* SPDX-License-Identifier: Apache-2.0 */

/* UTF-8 by table 3-7 of the Unicode standard: the range allowed for the second byte depends on
 * the first, which rules out overlong forms, surrogates and values past U+10FFFF at the
 * earliest byte. That earliest point also defines the "maximal subpart" which becomes one
 * U+FFFD. */

#include "base/utf8.h"

#include <string.h>

#include "base/alloc.h"

static const char replacement[] = "\xef\xbf\xbd"; /* U+FFFD */

enum { REPLACEMENT_LEN = sizeof(replacement) - 1 };

/* The length of the sequence that begins with `first`, or 0 when none does, and the range of
 * its second byte. */
static size_t sequence(unsigned char first, unsigned char *ret_low, unsigned char *ret_high)
{
    *ret_low = 0x80;
    *ret_high = 0xbf;
    if (first < 0x80)
        return 1;
    if (first < 0xc2 || first > 0xf4)
        return 0;
    if (first < 0xe0)
        return 2;
    if (first == 0xe0)
        *ret_low = 0xa0;
    else if (first == 0xed)
        *ret_high = 0x9f;
    else if (first == 0xf0)
        *ret_low = 0x90;
    else if (first == 0xf4)
        *ret_high = 0x8f;
    return first < 0xf0 ? 3 : 4;
}

size_t utf8_next(const char *s, size_t len, uint32_t *ret_code)
{
    const unsigned char *p = (const unsigned char *)s;
    unsigned char low;
    unsigned char high;
    size_t need = sequence(p[0], &low, &high);

    if (need <= 1) {
        *ret_code = need == 1 ? p[0] : UTF8_INVALID;
        return 1;
    }

    uint32_t code = p[0] & (0xffu >> (need + 1));
    for (size_t i = 1; i < need; i++) {
        if (i >= len || p[i] < low || p[i] > high) {
            *ret_code = UTF8_INVALID;
            return i;
        }
        code = code << 6 | (p[i] & 0x3fu);
        low = 0x80;
        high = 0xbf;
    }
    *ret_code = code;
    return need;
}

/* Skips eight bytes at a time: the output of programs is mostly ASCII. */
static size_t ascii_prefix(const char *s, size_t len)
{
    size_t i = 0;

    for (uint64_t word; len - i >= sizeof(word); i += sizeof(word)) {
        memcpy(&word, s + i, sizeof(word));
        if (word & UINT64_C(0x8080808080808080))
            break;
    }
    while (i < len && (unsigned char)s[i] < 0x80)
        i++;
    return i;
}

bool utf8_valid(const char *s, size_t len)
{
    for (size_t i = ascii_prefix(s, len); i < len; i += ascii_prefix(s + i, len - i)) {
        uint32_t code;
        i += utf8_next(s + i, len - i, &code);
        if (code == UTF8_INVALID)
            return false;
    }
    return true;
}

/* Writes the repaired text to out, or only measures it when out is NULL. */
static size_t repair(const char *s, size_t len, char *out)
{
    size_t used = 0;

    for (size_t i = 0; i < len;) {
        size_t n = ascii_prefix(s + i, len - i);
        uint32_t code = 0;

        if (n == 0)
            n = utf8_next(s + i, len - i, &code);
        bool is_bad = code == UTF8_INVALID;
        size_t from_len = is_bad ? (size_t)REPLACEMENT_LEN : n;
        if (out)
            memcpy(out + used, is_bad ? replacement : s + i, from_len);
        used += from_len;
        i += n;
    }
    return used;
}

char *utf8_repair(const char *s, size_t len, size_t *ret_len)
{
    size_t used = repair(s, len, NULL);
    char *out = xmalloc(used + 1);

    (void)repair(s, len, out);
    out[used] = '\0';
    if (ret_len)
        *ret_len = used;
    return out;
}

size_t utf8_floor(const char *s, size_t len)
{
    for (size_t back = 1; back <= 3 && back <= len; back++) {
        unsigned char low;
        unsigned char high;
        uint32_t code;
        const char *p = s + len - back;

        if (((unsigned char)*p & 0xc0) == 0x80)
            continue;
        /* Cut only an incomplete sequence that more bytes could complete; invalid bytes
         * stay. */
        if (sequence((unsigned char)*p, &low, &high) > back &&
            utf8_next(p, back, &code) == back)
            return len - back;
        break;
    }
    return len;
}

bool utf8_is_hidden(uint32_t code)
{
    static const uint32_t ranges[][2] = {{0x7f, 0x9f}, {0xad, 0xad}, {0x34f, 0x34f},
        {0x61c, 0x61c}, {0x115f, 0x1160}, {0x17b4, 0x17b5}, {0x180b, 0x180f}, {0x200b, 0x200f},
        {0x2028, 0x202e}, {0x2060, 0x206f}, {0x3164, 0x3164}, {0xfe00, 0xfe0f},
        {0xfeff, 0xfeff}, {0xffa0, 0xffa0}, {0xfff0, 0xfffb}, {0x1d173, 0x1d17a},
        {0xe0000, 0xe0fff}};
    bool is_in = code < 0x20;
    for (size_t i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++)
        is_in = is_in || (code >= ranges[i][0] && code <= ranges[i][1]);
    return is_in;
}
