/* SPDX-License-Identifier: Apache-2.0 */

/* See base64.h. */

#include "base/base64.h"

#include "base/alloc.h"
#include "base/cleanup.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

size_t base64_size(size_t len)
{
    return (len + 2) / 3 * 4;
}

void base64_encode(const void *data, size_t len, char *to)
{
    const unsigned char *in = data;

    for (size_t i = 0; i < len; i += 3) {
        size_t left = len - i;
        unsigned word = (unsigned)in[i] << 16 | (left > 1 ? (unsigned)in[i + 1] << 8 : 0) |
                        (left > 2 ? in[i + 2] : 0u);

        *to++ = digits[word >> 18];
        *to++ = digits[word >> 12 & 63];
        *to++ = left > 1 ? digits[word >> 6 & 63] : '=';
        *to++ = left > 2 ? digits[word & 63] : '=';
    }
}

char *base64_text(const void *data, size_t len)
{
    char *text = xmalloc(base64_size(len) + 1);

    base64_encode(data, len, text);
    text[base64_size(len)] = '\0';
    return text;
}

/* Decodes four digits into three bytes; false when one is not a digit. `values` maps a
 * character to its value plus 1, and to 0 when it is not a digit. */
static bool decode_four(const unsigned char values[256], const char in[4], char out[3])
{
    unsigned word = 0;
    bool is_good = true;
    for (int i = 0; i < 4; i++) {
        unsigned value = values[(unsigned char)in[i]];
        is_good = is_good && value;
        word = word << 6 | (value - 1);
    }
    out[0] = (char)(word >> 16);
    out[1] = (char)(word >> 8);
    out[2] = (char)word;
    return is_good;
}

int base64_decode(const char *text, size_t len, char **ret, size_t *ret_len)
{
    size_t pad = len >= 1 && text[len - 1] == '=' ? 1 : 0;
    pad += pad && len >= 2 && text[len - 2] == '=';
    if (len % 4 != 0)
        return -EINVAL;
    cleanup_free char *out = malloc(len / 4 * 3 + 1);
    if (!out)
        return -ENOMEM;
    unsigned char values[256] = {0};
    for (unsigned char i = 0; digits[i]; i++)
        values[(unsigned char)digits[i]] = i + 1;
    size_t whole = len - (pad ? 4 : 0);
    size_t used = 0;
    for (size_t i = 0; i < whole; i += 4, used += 3) {
        if (!decode_four(values, text + i, out + used))
            return -EINVAL;
    }
    if (pad) {
        char last[4] = "AAAA";
        memcpy(last, text + whole, 4 - pad);
        if (!decode_four(values, last, out + used))
            return -EINVAL;
        used += 3 - pad;
    }
    out[used] = '\0';
    *ret = take_ptr(out);
    *ret_len = used;
    return 0;
}
