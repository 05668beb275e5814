/* SPDX-License-Identifier: Apache-2.0 */

#include "core/json_read.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum {
    KEY_MAX = 256,
    VALUE_COST = 128,     /* a value with its name, beside the bytes of strings */
    CONTAINER_COST = 512, /* an empty one */
};

struct reader {
    const char *at, *end;
    unsigned depth, commas;
};

static json_t *read_value(struct reader *r);

static json_t *ask_jansson(const char *from, const char *to)
{
    return json_loadb(from, (size_t)(to - from), JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
}

/* Neither a control character, a quote, a backslash nor beyond ASCII. */
static bool is_plain(unsigned char c)
{
    return c >= ' ' && c < 0x80 && c != '"' && c != '\\';
}

/* The end of what is plain, eight bytes at a time: each of the four tests leaves the highest
 * bit of a byte set (where the lower bytes have none, which is all that is used). */
static const char *skip_plain(const char *at, const char *end)
{
    const uint64_t ones = 0x0101010101010101u;
    while (end - at >= 8) {
        uint64_t word;
        memcpy(&word, at, sizeof(word));
        uint64_t quote = word ^ ones * '"';
        uint64_t slash = word ^ ones * '\\';
        uint64_t odd = (word - ones * ' ') | word | (quote - ones) | (slash - ones);
        if (odd & ones * 0x80)
            break;
        at += 8;
    }
    while (at < end && is_plain((unsigned char)*at))
        at++;
    return at;
}

static void skip_space(struct reader *r)
{
    while (
        r->at < r->end && (*r->at == ' ' || *r->at == '\n' || *r->at == '\t' || *r->at == '\r'))
        r->at++;
}

static bool take(struct reader *r, char c)
{
    skip_space(r);
    if (r->at == r->end || *r->at != c)
        return false;
    r->at++;
    return true;
}

/* What a backslash and this stand for; NUL for what jansson is to see. */
static char unescaped(char c)
{
    static const char from[] = "\"\\/bfnrt";
    static const char to[] = "\"\\/\b\f\n\r\t";
    const char *found = c ? strchr(from, c) : NULL;
    return found ? to[found - from] : '\0';
}

/* With nothing in it that is not plain but escapes of one character. */
static json_t *unescape(const char *begin, const char *end)
{
    char *text = malloc((size_t)(end - begin) + 1);
    size_t len = 0;
    while (text && begin < end) {
        const char *next = skip_plain(begin, end);
        memcpy(text + len, begin, (size_t)(next - begin));
        len += (size_t)(next - begin);
        if (next < end)
            text[len++] = unescaped(next[1]);
        begin = next < end ? next + 2 : end;
    }
    json_t *value = text ? json_stringn_nocheck(text, len) : NULL;
    free(text);
    return value;
}

/* A string that is not plain, from its first character on. */
static json_t *read_hard_string(struct reader *r)
{
    const char *begin = r->at;
    const char *at = begin;
    bool is_easy = true;
    while ((at = skip_plain(at, r->end)) < r->end && *at != '"') {
        bool is_escape = *at == '\\' && at + 1 < r->end;
        is_easy = is_easy && is_escape && unescaped(at[1]);
        at += is_escape ? 2 : 1;
    }
    if (at >= r->end)
        return NULL;
    r->at = at + 1;
    return is_easy ? unescape(begin, at) : ask_jansson(begin - 1, at + 1);
}

/* After its quote. */
static json_t *read_string(struct reader *r)
{
    const char *end = skip_plain(r->at, r->end);
    if (end == r->end || *end != '"')
        return read_hard_string(r);
    json_t *value = json_stringn_nocheck(r->at, (size_t)(end - r->at));
    r->at = end + 1;
    return value;
}

/* A name that is plain, up to its colon. */
static bool read_name(struct reader *r, char name[KEY_MAX])
{
    if (!take(r, '"'))
        return false;
    const char *end = skip_plain(r->at, r->end);
    size_t len = (size_t)(end - r->at);
    if (end == r->end || *end != '"' || len >= KEY_MAX)
        return false;
    memcpy(name, r->at, len);
    name[len] = '\0';
    r->at = end + 1;
    return take(r, ':');
}

static bool read_member(struct reader *r, json_t *object)
{
    char name[KEY_MAX];
    if (!read_name(r, name) || json_object_get(object, name))
        return false;
    return json_object_set_new_nocheck(object, name, read_value(r)) == 0;
}

static bool read_item(struct reader *r, json_t *array)
{
    return json_array_append_new(array, read_value(r)) == 0;
}

/* What lies between brackets, the first of which was taken. */
static json_t *read_all(struct reader *r, json_t *container, char close,
    bool (*read_one)(struct reader *r, json_t *container))
{
    bool is_good = container && ++r->depth <= JSON_READ_DEPTH;
    if (is_good && !take(r, close)) {
        do
            is_good = read_one(r, container);
        while (is_good && take(r, ',') && ++r->commas <= JSON_READ_VALUES);
        is_good = is_good && take(r, close);
    }
    r->depth--;
    if (is_good)
        return container;
    json_decref(container);
    return NULL;
}

static json_t *read_word(struct reader *r, const char *word, json_t *value)
{
    size_t len = strlen(word);
    if ((size_t)(r->end - r->at) < len || memcmp(r->at, word, len) != 0)
        return NULL;
    r->at += len;
    return value;
}

static json_t *read_number(struct reader *r)
{
    const char *begin = r->at;
    while (r->at < r->end && *r->at && strchr("+-.0123456789eE", *r->at))
        r->at++;
    return begin < r->at ? ask_jansson(begin, r->at) : NULL;
}

static json_t *read_value(struct reader *r)
{
    if (take(r, '"'))
        return read_string(r);
    if (take(r, '{'))
        return read_all(r, json_object(), '}', read_member);
    if (take(r, '['))
        return read_all(r, json_array(), ']', read_item);
    switch (r->at < r->end ? *r->at : '\0') {
    case 't':
        return read_word(r, "true", json_true());
    case 'f':
        return read_word(r, "false", json_false());
    case 'n':
        return read_word(r, "null", json_null());
    default:
        return read_number(r);
    }
}

json_t *json_read(const char *text, size_t len)
{
    struct reader r = {.at = text, .end = text + len};
    json_t *value = read_value(&r);
    skip_space(&r);
    if (value && r.at == r.end)
        return value;
    json_decref(value);
    return NULL;
}

/* The end of a string, after its quote. */
static const char *skip_string(const char *at, const char *end)
{
    while ((at = skip_plain(at, end)) < end && *at != '"')
        at += *at == '\\' && at + 1 < end ? 2 : 1;
    return at + (at < end);
}

int json_read_weigh(const char *text, size_t len, size_t *ret, struct err *err)
{
    size_t depth = 0;
    size_t commas = 0;
    size_t containers = 0;
    size_t colons = 0;
    for (const char *at = text, *end = text + len;
         at < end && depth <= JSON_READ_DEPTH && commas <= JSON_READ_VALUES;) {
        char c = *at++;
        if (c == '"')
            at = skip_string(at, end);
        commas += c == ',';
        colons += c == ':';
        containers += c == '[' || c == '{';
        depth += c == '[' || c == '{';
        depth -= (c == ']' || c == '}') && depth > 0;
    }
    /* More of them than that is malformed. The longest string is there twice while it is read.
     */
    containers = containers < commas + JSON_READ_DEPTH ? containers : commas + JSON_READ_DEPTH;
    colons = colons < commas + JSON_READ_DEPTH ? colons : commas + JSON_READ_DEPTH;
    *ret = 2 * len + (commas + colons) * VALUE_COST + containers * CONTAINER_COST;
    if (depth > JSON_READ_DEPTH)
        return err_set(
            err, ERR_INVALID, EBADMSG, "the JSON is deeper than %d levels", JSON_READ_DEPTH);
    return commas > JSON_READ_VALUES ? err_set(err, ERR_INVALID, EBADMSG,
                                           "the JSON has more than %d values", JSON_READ_VALUES)
                                     : 0;
}
