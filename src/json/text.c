/* SPDX-License-Identifier: Apache-2.0 */

/* See text.h. The form is that of jansson's json_dumps(JSON_COMPACT), byte for byte. */

#include "json/text.h"

#include "base/base64.h"
#include "base/cleanup.h"
#include "base/utf8.h"
#include "json/plain.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* SMALL: bytes on the stack that a short answer is written to. DIGITS: significant digits of a
 * real number. */
enum { SMALL = 4096, DIGITS = 12 };

static void put(struct json_text *t, const char *data, size_t len)
{
    if (t->len <= t->room && len <= t->room - t->len && len)
        memcpy(t->to + t->len, data, len);
    t->len += len;
}

/* Most answers are small and are written while they are measured; only larger ones take a
 * second pass. */
struct answer *json_text_answer(struct ledger *ledger, int owner, struct purse *held,
    json_writer *write, const void *context)
{
    char small[SMALL];
    struct json_text first = {.to = small, .room = sizeof(small)};
    write(&first, context);
    struct answer *a = answer_new(ledger, owner, first.len, held);
    if (!a)
        return NULL;
    if (first.len <= sizeof(small)) {
        memcpy(a->text, first.to, first.len);
        return a;
    }
    struct json_text second = {.to = a->text, .room = a->len};
    write(&second, context);
    return a;
}

json_t *json_text_load(json_writer *write, const void *context)
{
    struct answer *a = json_text_answer(NULL, -1, NULL, write, context);
    json_t *value =
        a ? json_loadb(a->text, a->len, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL) : NULL;
    answer_release(a);
    return value;
}

void json_text_add(struct json_text *t, const char *text)
{
    put(t, text, strlen(text));
}

static void put_escaped(struct json_text *t, unsigned char c)
{
    static const char from[] = "\"\\\b\f\n\r\t";
    static const char to[] = "\"\\bfnrt";
    static const char hex[] = "0123456789ABCDEF";
    const char *found = c ? strchr(from, c) : NULL;
    char text[6] = {'\\', 'u', '0', '0', hex[c >> 4], hex[c & 15]};
    if (found)
        text[1] = to[found - from];
    put(t, text, found ? 2 : sizeof(text));
}

/* Writes one code point or invalid part; returns the bytes it takes. */
static size_t put_point(struct json_text *t, const char *data, size_t len)
{
    uint32_t code;
    size_t n = utf8_next(data, len, &code);
    if (code == UTF8_INVALID)
        put(t, "\xef\xbf\xbd", 3);
    else if (code < ' ' || code == '"' || code == '\\')
        put_escaped(t, (unsigned char)code);
    else
        put(t, data, n);
    return n;
}

/* Completes the code point that the last part began. Returns how many bytes of this part it
 * used. */
static size_t join(struct json_text *t, const char *data, size_t len)
{
    char joined[8];
    size_t kept = t->partial_len;
    size_t more = len < 3 ? len : 3;
    size_t at = 0;
    memcpy(joined, t->partial, kept);
    memcpy(joined + kept, data, more);
    if (kept + more < sizeof(t->partial) && utf8_floor(joined, kept + more) == 0) {
        memcpy(t->partial, joined, kept + more);
        t->partial_len += more;
        return more;
    }
    while (at < kept)
        at += put_point(t, joined + at, kept + more - at);
    t->partial_len = 0;
    return at - kept;
}

void json_text_open(struct json_text *t)
{
    t->partial_len = 0;
    put(t, "\"", 1);
}

void json_text_part(struct json_text *t, const char *data, size_t len)
{
    size_t i = t->partial_len && len ? join(t, data, len) : 0;
    size_t whole = i + (len > i ? utf8_floor(data + i, len - i) : 0);
    while (i < whole) {
        size_t n = json_plain_prefix(data + i, whole - i);
        put(t, data + i, n);
        i += n;
        if (i < whole)
            i += put_point(t, data + i, whole - i);
    }
    if (whole < len) {
        t->partial_len = len - whole;
        memcpy(t->partial, data + whole, t->partial_len);
    }
}

void json_text_close(struct json_text *t)
{
    for (size_t i = 0; i < t->partial_len;)
        i += put_point(t, t->partial + i, t->partial_len - i);
    t->partial_len = 0;
    put(t, "\"", 1);
}

void json_text_string(struct json_text *t, const char *data, size_t len)
{
    json_text_open(t);
    json_text_part(t, data, len);
    json_text_close(t);
}

void json_text_word(struct json_text *t, const char *word)
{
    if (word)
        json_text_string(t, word, strlen(word));
    else
        json_text_add(t, "null");
}

void json_text_base64(struct json_text *t, const void *data, size_t len)
{
    size_t size = base64_size(len);
    json_text_add(t, "\"");
    if (t->len <= t->room && size <= t->room - t->len)
        base64_encode(data, len, t->to + t->len);
    t->len += size;
    json_text_add(t, "\"");
}

void json_text_int(struct json_text *t, int64_t number)
{
    char text[32];
    (void)snprintf(text, sizeof(text), "%" PRId64, number);
    json_text_add(t, text);
}

void json_text_real(struct json_text *t, double number)
{
    char text[40];
    int len = snprintf(text, sizeof(text), "%.*g", DIGITS, number);
    json_text_add(t, text);
    if (!memchr(text, '.', (size_t)len) && !memchr(text, 'e', (size_t)len))
        json_text_add(t, ".0");
}

void json_text_bool(struct json_text *t, bool is_true)
{
    json_text_add(t, is_true ? "true" : "false");
}

static int on_dump(const char *data, size_t len, void *context)
{
    put(context, data, len);
    return 0;
}

void json_text_value(struct json_text *t, const json_t *value)
{
    (void)json_dump_callback(
        value, on_dump, t, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(DIGITS));
}
