/* SPDX-License-Identifier: Apache-2.0 */

/* See read.h. A recursive descent parser, whose depth JSON_READ_DEPTH bounds. It skips plain
 * characters of strings eight at a time, because strings are most of a request. */

#include "json/read.h"

#include "base/utf8.h"
#include "json/plain.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define TOO_DEEP "deeper than 64 levels"
#define TOO_MANY "more than 100000 values"
_Static_assert(JSON_READ_DEPTH == 64 && JSON_READ_VALUES == 100000, "as the texts say");

enum {
    VALUE_COST = 128,     /* bytes for a value with its name, without the bytes of strings */
    CONTAINER_COST = 512, /* bytes for an empty object or array */
};

struct reader {
    const char *begin, *at, *end;
    unsigned depth, commas;
    struct json_problem problem;
};

static json_t *read_value(struct reader *r);

/* Records the first problem only; later ones follow from it. Returns NULL, which callers also
 * use as false. */
static void *fail(struct reader *r, const char *at, const char *text)
{
    if (!r->problem.text)
        r->problem = (struct json_problem){.text = text, .at = (size_t)(at - r->begin)};
    return NULL;
}

static json_t *check_made(struct reader *r, json_t *value)
{
    return value ? value : fail(r, r->at, "no memory");
}

static const char *skip_plain(const char *at, const char *end)
{
    return at + json_plain_prefix(at, (size_t)(end - at));
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

/* Strings. */

static int hex_value(char c)
{
    static const char digits[] = "0123456789abcdef0123456789ABCDEF";
    const char *found = c ? strchr(digits, c) : NULL;
    return found ? (int)(found - digits) % 16 : -1;
}

/* The code unit of \uXXXX at `at`, or -1. */
static long read_unit(const char *at, const char *end)
{
    long unit = 0;
    if (end - at < 6 || at[0] != '\\' || at[1] != 'u')
        return -1;
    for (int i = 2; i < 6; i++) {
        int digit = hex_value(at[i]);
        if (digit < 0)
            return -1;
        unit = unit << 4 | digit;
    }
    return unit;
}

static char *put_utf8(char *to, unsigned long code)
{
    static const unsigned char marks[] = {0, 0, 0xc0, 0xe0, 0xf0};
    int count = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (int i = count - 1; i > 0; i--, code >>= 6)
        to[i] = (char)(0x80 | (code & 0x3f));
    to[0] = (char)(marks[count] | code);
    return to + count;
}

/* Decodes one escape, which is at least as long as its result. Moves *at past it. Returns the
 * end of the result, or NULL. */
static char *unescape(char *to, const char **at, const char *end)
{
    static const char from[] = "\"\\/bfnrt";
    static const char stands_for[] = "\"\\/\b\f\n\r\t";
    const char *found = end - *at >= 2 && (*at)[1] ? strchr(from, (*at)[1]) : NULL;
    if (found) {
        *at += 2;
        *to = stands_for[found - from];
        return to + 1;
    }
    long code = read_unit(*at, end);
    *at += 6;
    if (code >= 0xd800 && code < 0xdc00) {
        long low = read_unit(*at, end);
        *at += 6;
        code = low >= 0xdc00 && low < 0xe000
                   ? 0x10000 + ((code - 0xd800) << 10 | (low - 0xdc00))
                   : -1;
    }
    return code < 0 || (code >= 0xdc00 && code < 0xe000) ? NULL
                                                         : put_utf8(to, (unsigned long)code);
}

/* Finds the closing quote of a string. Checks the bytes but not the escapes. */
static const char *find_quote(struct reader *r, bool *ret_has_escapes)
{
    const char *at = r->at;
    *ret_has_escapes = false;
    while ((at = skip_plain(at, r->end)) < r->end && *at != '"') {
        uint32_t code = 0;
        size_t n = 2;
        if (*at == '\\')
            *ret_has_escapes = true;
        else if ((unsigned char)*at < ' ')
            return fail(r, at, "control character in a string");
        else
            n = utf8_next(at, (size_t)(r->end - at), &code);
        if (code == UTF8_INVALID)
            return fail(r, at, "unable to decode byte as UTF-8");
        if ((size_t)(r->end - at) < n)
            break;
        at += n;
    }
    return at < r->end && *at == '"' ? at : fail(r, r->at - 1, "string without an end");
}

/* Makes the string between `at` and `end`, which contains escapes. */
static json_t *unescape_all(struct reader *r, const char *at, const char *end)
{
    char *text = malloc((size_t)(end - at));
    char *to = text;
    const char *slash = NULL;
    while (to && at < end) {
        slash = memchr(at, '\\', (size_t)(end - at));
        size_t len = (size_t)((slash ? slash : end) - at);
        memcpy(to, at, len);
        to += len;
        at += len;
        if (slash)
            to = unescape(to, &at, end);
    }
    bool is_invalid = text && !to;
    json_t *string = to ? json_stringn_nocheck(text, (size_t)(to - text)) : NULL;
    free(text);
    return is_invalid ? fail(r, slash, "invalid escape") : check_made(r, string);
}

/* Reads a string; the opening quote was taken. */
static json_t *read_string(struct reader *r)
{
    bool has_escapes;
    const char *at = r->at;
    const char *end = find_quote(r, &has_escapes);
    if (!end)
        return NULL;
    r->at = end + 1;
    if (has_escapes)
        return unescape_all(r, at, end);
    return check_made(r, json_stringn_nocheck(at, (size_t)(end - at)));
}

/* Numbers. */

static const char *skip_digits(const char *at, const char *end)
{
    while (at < end && *at >= '0' && *at <= '9')
        at++;
    return at;
}

/* Returns the end of the number at `at`, or NULL. *ret_is_real says whether it has a fraction
 * or an exponent. */
static const char *find_number_end(const char *at, const char *end, bool *ret_is_real)
{
    at += at < end && *at == '-';
    const char *digits = at;
    at = skip_digits(at, end);
    *ret_is_real = false;
    if (at == digits || (*digits == '0' && at > digits + 1))
        return NULL;
    if (at < end && *at == '.') {
        *ret_is_real = true;
        digits = at + 1;
        if ((at = skip_digits(digits, end)) == digits)
            return NULL;
    }
    if (at < end && (*at == 'e' || *at == 'E')) {
        *ret_is_real = true;
        at++;
        at += at < end && (*at == '+' || *at == '-');
        digits = at;
        if ((at = skip_digits(digits, end)) == digits)
            return NULL;
    }
    return at;
}

static json_t *read_number(struct reader *r)
{
    bool is_real;
    const char *at = r->at;
    const char *end = find_number_end(at, r->end, &is_real);
    if (!end)
        return fail(r, at, at < r->end ? "invalid token" : "the text ends too early");
    char *text = strndup(at, (size_t)(end - at)); /* with a NUL at the end */
    if (!text)
        return check_made(r, NULL);
    errno = 0;
    double real = is_real ? strtod(text, NULL) : 0;
    long long whole = is_real ? 0 : strtoll(text, NULL, 10);
    bool is_outside = is_real ? isinf(real) : errno == ERANGE;
    free(text);
    if (is_outside) {
        (void)fail(
            r, at, is_real ? "it does not fit into a double" : "it does not fit into 64 bits");
        r->problem.is_range = true; /* this is the first problem: reading ends here */
        return NULL;
    }
    r->at = end;
    return check_made(r, is_real ? json_real(real) : json_integer(whole));
}

/* Containers. */

static bool read_member(struct reader *r, json_t *object)
{
    skip_space(r);
    const char *at = r->at;
    json_t *name = take(r, '"') ? read_string(r) : fail(r, at, "a name in quotes is missing");
    const char *text = json_string_value(name);
    bool is_good = text;
    if (text && strlen(text) != json_string_length(name))
        is_good = fail(r, at, "NUL in a name");
    else if (text && json_object_get(object, text))
        is_good = fail(r, at, "duplicate name");
    else if (text && !take(r, ':'))
        is_good = fail(r, r->at, "a colon is missing");
    json_t *value = is_good ? read_value(r) : NULL;
    is_good = value && json_object_set_new_nocheck(object, text, value) == 0;
    json_decref(name);
    return is_good;
}

static bool read_item(struct reader *r, json_t *array)
{
    json_t *value = read_value(r);
    return value && json_array_append_new(array, value) == 0;
}

/* Reads the members or items up to the closing bracket; the opening bracket was taken. */
static json_t *read_all(struct reader *r, json_t *container, char close,
    bool (*read_one)(struct reader *r, json_t *container))
{
    const char *at = r->at - 1;
    bool is_good = check_made(r, container);
    if (++r->depth > JSON_READ_DEPTH)
        is_good = fail(r, at, TOO_DEEP);
    if (is_good && !take(r, close)) {
        do
            is_good = read_one(r, container);
        while (is_good && take(r, ',') && ++r->commas <= JSON_READ_VALUES);
        if (r->commas > JSON_READ_VALUES)
            is_good = fail(r, r->at, TOO_MANY);
        else if (is_good && !take(r, close))
            is_good = fail(r, r->at, "a comma or a closing bracket is missing");
    }
    r->depth--;
    if (is_good)
        return container;
    json_decref(container);
    return fail(r, r->at, "no memory");
}

static json_t *read_word(struct reader *r, const char *word, json_t *value)
{
    size_t len = strlen(word);
    if ((size_t)(r->end - r->at) < len || memcmp(r->at, word, len) != 0)
        return fail(r, r->at, "invalid token");
    r->at += len;
    return value;
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

json_t *json_read(const char *text, size_t len, struct json_problem *ret)
{
    struct reader r = {.begin = text, .at = text, .end = text + len};
    json_t *value = read_value(&r);
    skip_space(&r);
    if (value && r.at == r.end)
        return value;
    json_decref(value);
    (void)fail(&r, r.at, "more than one value");
    *ret = r.problem;
    return NULL;
}

/* Returns the end of a string whose opening quote was taken. */
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
    /* Well-formed text has no more containers and colons than this. The longest string exists
     * twice while it is read, hence 2 * len. */
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

json_t *json_read_bounded(const char *text, size_t len, const char **ret_problem)
{
    struct json_problem problem = {0};
    struct err ignored = {0};
    size_t weight;
    *ret_problem = "too many values or levels";
    if (json_read_weigh(text, len, &weight, &ignored) < 0)
        return NULL;
    json_t *value = json_read(text, len, &problem);
    *ret_problem = problem.text;
    return value;
}
