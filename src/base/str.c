/* SPDX-License-Identifier: Apache-2.0 */

/* Strict parsing of short text: numbers, sizes, durations, file names, glob patterns. strtol
 * and its relatives skip spaces, accept signs and stop early, so this file counts digits by
 * hand, in 128 bits where a fraction meets a unit. Glob patterns come from strangers. They run
 * as a set of states over the path, which cannot blow up as backtracking can. */

#include "base/str.h"

#include <errno.h>
#include <string.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/utf8.h"

enum {
    NAME_MAX_BYTES = 4096,
    NAME_MAX_COMPONENT = 255,
    NAME_MAX_LEVELS = 32,
    FRACTION_MAX_DIGITS = 18, /* 10^18 times the largest unit stays well below 2^128 */
};

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Reads the digits at *s and moves past them. Continues after an overflow, so that trailing
 * garbage is reported as garbage and not as a number out of range. */
static int parse_digits(const char **s, uint64_t *ret_value)
{
    uint64_t value = 0;
    bool is_over = false;

    if (!is_digit(**s))
        return -EINVAL;
    for (; is_digit(**s); (*s)++) {
        if (__builtin_mul_overflow(value, 10u, &value) ||
            __builtin_add_overflow(value, (uint64_t)(**s - '0'), &value))
            is_over = true;
    }
    *ret_value = value;
    return is_over ? -ERANGE : 0;
}

int str_parse_u64(const char *s, uint64_t *ret_value)
{
    uint64_t value = 0;

    if (!s)
        return -EINVAL;
    int r = parse_digits(&s, &value);
    if (*s != '\0')
        return -EINVAL;
    if (r == 0)
        *ret_value = value;
    return r;
}

int str_parse_i64(const char *s, int64_t *ret_value)
{
    uint64_t value = 0;

    if (!s)
        return -EINVAL;
    bool is_negative = *s == '-';
    int r = str_parse_u64(s + is_negative, &value);
    if (r < 0)
        return r;
    if (value > (uint64_t)INT64_MAX + is_negative)
        return -ERANGE;
    *ret_value = is_negative ? (int64_t)(0 - value) : (int64_t)value;
    return 0;
}

int str_parse_u32(const char *s, uint32_t *ret_value)
{
    uint64_t value = 0;
    int r = str_parse_u64(s, &value);

    if (r < 0)
        return r;
    if (value > UINT32_MAX)
        return -ERANGE;
    *ret_value = (uint32_t)value;
    return 0;
}

struct unit {
    const char *name;
    uint64_t factor;
    bool is_whole; /* must be a whole number: there is no smaller unit */
};

static const struct unit size_units[] = {
    {"", 1, true},
    {"b", 1, true},
    {"k", UINT64_C(1) << 10, false},
    {"kb", UINT64_C(1) << 10, false},
    {"kib", UINT64_C(1) << 10, false},
    {"m", UINT64_C(1) << 20, false},
    {"mb", UINT64_C(1) << 20, false},
    {"mib", UINT64_C(1) << 20, false},
    {"g", UINT64_C(1) << 30, false},
    {"gb", UINT64_C(1) << 30, false},
    {"gib", UINT64_C(1) << 30, false},
    {"t", UINT64_C(1) << 40, false},
    {"tb", UINT64_C(1) << 40, false},
    {"tib", UINT64_C(1) << 40, false},
    {NULL, 0, false},
};

static const struct unit duration_units[] = {
    {"", 1000, false},
    {"ms", 1, false},
    {"s", 1000, false},
    {"m", UINT64_C(60) * 1000, false},
    {"h", UINT64_C(60) * 60 * 1000, false},
    {NULL, 0, false},
};

typedef int compare_fn(const char *a, const char *b);

/* DIGITS[.DIGITS]UNIT, rounded up to a whole number of the smallest unit. */
static int parse_quantity(
    const char *s, const struct unit *units, compare_fn *compare, uint64_t *ret_value)
{
    uint64_t whole;
    unsigned __int128 fraction = 0;
    unsigned __int128 scale = 1;
    bool has_fraction = false;
    bool has_rest = false;

    if (!s)
        return -EINVAL;
    int r = parse_digits(&s, &whole);
    if (r == -EINVAL)
        return r;
    if (*s == '.') {
        has_fraction = true;
        if (!is_digit(*++s))
            return -EINVAL;
        for (int count = 0; is_digit(*s); s++, count++) {
            if (count < FRACTION_MAX_DIGITS) {
                fraction = fraction * 10 + (unsigned)(*s - '0');
                scale *= 10;
            } else if (*s != '0') {
                has_rest = true;
            }
        }
    }
    while (units->name && compare(s, units->name) != 0)
        units++;
    if (!units->name || (has_fraction && units->is_whole))
        return -EINVAL;
    if (r < 0)
        return r;

    unsigned __int128 part = fraction * units->factor;
    unsigned __int128 value = (unsigned __int128)whole * units->factor + part / scale;
    if (part % scale != 0 || has_rest)
        value++;
    if (value > UINT64_MAX)
        return -ERANGE;
    *ret_value = (uint64_t)value;
    return 0;
}

/* strcasecmp follows the locale, and in some locales "K" is not the upper case of "k". */
static int compare_ascii_case(const char *a, const char *b)
{
    for (;; a++, b++) {
        char c = *a >= 'A' && *a <= 'Z' ? (char)(*a - 'A' + 'a') : *a;
        if (c != *b)
            return 1;
        if (c == '\0')
            return 0;
    }
}

int str_parse_bool(const char *s, bool *ret_value)
{
    static const char *const words[] = {"false", "true", "0", "1", "no", "yes", "off", "on"};
    for (size_t i = 0; s && i < sizeof(words) / sizeof(words[0]); i++) {
        if (compare_ascii_case(s, words[i]) == 0) {
            *ret_value = i % 2;
            return 0;
        }
    }
    return -EINVAL;
}

int str_parse_size(const char *s, uint64_t *ret_bytes)
{
    return parse_quantity(s, size_units, compare_ascii_case, ret_bytes);
}

int str_parse_duration_ms(const char *s, uint64_t *ret_ms)
{
    return parse_quantity(s, duration_units, strcmp, ret_ms);
}

bool str_eq(const char *a, const char *b)
{
    if (!a || !b)
        return a == b;
    return strcmp(a, b) == 0;
}

bool str_has_prefix(const char *s, const char *prefix)
{
    return s && prefix && strncmp(s, prefix, strlen(prefix)) == 0;
}

bool str_list_has(const char *list, const char *word)
{
    const size_t len = strlen(word);
    for (const char *at = list; at[0]; at += strspn(at, ", ")) {
        size_t part = strcspn(at, ", ");
        if (part && part == len && memcmp(at, word, len) == 0)
            return true;
        at += part;
    }
    return false;
}

bool str_list_covers(const char *list, const char *word)
{
    return str_list_has(list, "*") || str_list_has(list, word);
}

bool str_has_suffix(const char *s, const char *suffix)
{
    if (!s || !suffix)
        return false;
    size_t len = strlen(s);
    size_t suffix_len = strlen(suffix);
    return suffix_len <= len && memcmp(s + len - suffix_len, suffix, suffix_len) == 0;
}

void str_hex(const void *bytes, size_t len, char *to)
{
    static const char digits[] = "0123456789abcdef";
    const uint8_t *from = bytes;
    for (size_t i = 0; i < len; i++) {
        *to++ = digits[from[i] >> 4];
        *to++ = digits[from[i] & 15];
    }
    *to = '\0';
}

char *str_join(const char *const *parts, size_t count, const char *sep)
{
    size_t sep_len = strlen(sep);
    size_t size = 1;

    for (size_t i = 0; i < count; i++)
        size += strlen(parts[i]) + (i > 0 ? sep_len : 0);

    char *joined = xmalloc(size);
    char *p = joined;
    for (size_t i = 0; i < count; i++) {
        if (i > 0)
            p = mempcpy(p, sep, sep_len);
        p = mempcpy(p, parts[i], strlen(parts[i]));
    }
    *p = '\0';
    return joined;
}

char *str_shell_word(const char *word)
{
    static const char special[] = " \t\n\"$&'()*;<>?[\\`{|";
    bool is_plain = *word && !strpbrk(word, special) && !strchr("~#!", *word);
    if (is_plain || str_eq(word, "{}")) /* as in `find -exec x {}` */
        return xstrdup(word);
    char *quoted = xmalloc(4 * strlen(word) + sizeof("''"));
    char *to = quoted;
    *to++ = '\'';
    for (; *word; word++) {
        if (*word == '\'')
            to = mempcpy(to, "'\\''", 4);
        else
            *to++ = *word;
    }
    *to++ = '\'';
    *to = '\0';
    return quoted;
}

static const char *component_problem(const char *name, size_t len)
{
    if (len == 0)
        return "has an empty component";
    if (len == 1 && name[0] == '.')
        return "has a \".\" component";
    if (len == 2 && name[0] == '.' && name[1] == '.')
        return "has a \"..\" component";
    if (len > NAME_MAX_COMPONENT)
        return "has a component of more than 255 bytes";
    return NULL;
}

static const char *text_problem(const char *name, size_t len)
{
    for (size_t i = 0; i < len;) {
        uint32_t code;
        i += utf8_next(name + i, len - i, &code);
        if (code == UTF8_INVALID)
            return "is not valid UTF-8";
        if (code == 0)
            return "contains a NUL byte";
        if (code < 0x20 || (code >= 0x7f && code <= 0x9f))
            return "contains a control character";
        if (code == '\\')
            return "contains a backslash";
    }
    return NULL;
}

const char *str_name_problem(const char *name, size_t len)
{
    if (!name || len == 0)
        return "is empty";
    if (len > NAME_MAX_BYTES)
        return "is longer than 4096 bytes";
    if (name[0] == '/')
        return "is not relative";

    const char *problem = text_problem(name, len);
    int levels = 0;
    for (size_t start = 0; !problem && start <= len; levels++) {
        const char *slash = memchr(name + start, '/', len - start);
        size_t end = slash ? (size_t)(slash - name) : len;

        problem = component_problem(name + start, end - start);
        start = end + 1;
    }
    if (!problem && levels > NAME_MAX_LEVELS)
        problem = "has more than 32 levels";
    return problem;
}

/* One element of a glob pattern. The flags say whether the match has reached this element,
 * before (is_active) and after (is_next) the current character of the path. */
struct token {
    enum {
        TOKEN_CHAR,
        TOKEN_ANY_CHAR, /* ? */
        TOKEN_CLASS,    /* [...] */
        TOKEN_STAR,     /* * */
        TOKEN_ANY,      /* ** */
        TOKEN_DIRS,     /* ** and a slash where a component begins */
        TOKEN_END,
    } kind;
    uint32_t code;    /* of TOKEN_CHAR */
    const char *text; /* of TOKEN_CLASS, past the bracket */
    bool is_active;
    bool is_next;
};

/* Reads one character, which may be quoted by a backslash. Returns the bytes it takes; p <
 * end. */
static size_t read_char(const char *p, const char *end, uint32_t *ret_code)
{
    size_t quote = p[0] == '\\' && p + 1 < end ? 1 : 0;
    return quote + utf8_next(p + quote, (size_t)(end - p) - quote, ret_code);
}

/* Reads a class from behind its bracket. Returns its end, or NULL when it is not closed.
 * *ret_has says whether code is a member. */
static const char *read_class(const char *p, const char *end, uint32_t code, bool *ret_has)
{
    bool is_negated = p < end && (*p == '!' || *p == '^');
    bool has = false;

    p += is_negated;
    for (bool is_first = true; p < end; is_first = false) {
        uint32_t low;
        uint32_t high;

        if (*p == ']' && !is_first) {
            *ret_has = has != is_negated && code != '/';
            return p + 1;
        }
        p += read_char(p, end, &low);
        high = low;
        if (end - p > 1 && p[0] == '-' && p[1] != ']')
            p += 1 + read_char(p + 1, end, &high);
        if (code >= low && code <= high)
            has = true;
    }
    return NULL;
}

static const char *read_stars(const char *pattern, const char *p, struct token *token)
{
    size_t count = strspn(p, "*");

    if (count == 1) {
        token->kind = TOKEN_STAR;
    } else if (p[count] == '/' && (p == pattern || p[-1] == '/')) {
        token->kind = TOKEN_DIRS;
        count++;
    } else {
        token->kind = TOKEN_ANY;
    }
    return p + count;
}

/* Fills in one token for each element and TOKEN_END. */
static void read_pattern(const char *pattern, const char *end, struct token *tokens)
{
    /* When one class is not closed, no later one is. Searching again for each bracket would
     * take quadratic time. */
    bool has_classes = true;

    for (const char *p = pattern; p < end; tokens++) {
        const char *class_end = NULL;
        bool has;

        if (*p == '[' && has_classes) {
            class_end = read_class(p + 1, end, 0, &has);
            has_classes = class_end != NULL;
        }
        if (class_end) {
            tokens->kind = TOKEN_CLASS;
            tokens->text = p + 1;
            p = class_end;
        } else if (*p == '*') {
            p = read_stars(pattern, p, tokens);
        } else if (*p == '?') {
            tokens->kind = TOKEN_ANY_CHAR;
            p++;
        } else {
            tokens->kind = TOKEN_CHAR;
            p += read_char(p, end, &tokens->code);
        }
    }
    tokens->kind = TOKEN_END;
}

/* Marks a token as reached, and the tokens behind it that may match nothing. */
static void enter(struct token *token)
{
    while (!token->is_next) {
        token->is_next = true;
        if (token->kind != TOKEN_STAR && token->kind != TOKEN_ANY && token->kind != TOKEN_DIRS)
            return;
        token++;
    }
}

/* Advances an active token by one character of the path. */
static void take_char(struct token *token, const char *end, uint32_t code)
{
    bool has = false;

    switch (token->kind) {
    case TOKEN_CHAR:
        has = token->code == code && code != UTF8_INVALID;
        break;
    case TOKEN_ANY_CHAR:
        has = code != '/';
        break;
    case TOKEN_CLASS:
        (void)read_class(token->text, end, code, &has);
        break;
    case TOKEN_STAR:
        if (code != '/')
            enter(token);
        return;
    case TOKEN_ANY:
        enter(token);
        return;
    case TOKEN_DIRS:
        /* The tokens behind may begin only where a component begins. Tokens are visited in
         * order, so every token before this one has already entered it. */
        token->is_next = true;
        has = code == '/';
        break;
    case TOKEN_END:
        return;
    }
    if (has)
        enter(token + 1);
}

/* Makes the tokens that this step entered the active ones; false when there are none. */
static bool finish_step(struct token *tokens)
{
    bool is_alive = false;

    for (struct token *token = tokens;; token++) {
        token->is_active = token->is_next;
        token->is_next = false;
        is_alive = is_alive || token->is_active;
        if (token->kind == TOKEN_END)
            return is_alive;
    }
}

bool str_glob_match(const char *pattern, const char *path)
{
    size_t pattern_len = strlen(pattern);
    size_t path_len = strlen(path);
    const char *end = pattern + pattern_len;

    if (pattern_len > STR_GLOB_MAX)
        return false;

    cleanup_free struct token *tokens = xcalloc(pattern_len + 1, sizeof(*tokens));
    struct token *token = tokens;
    read_pattern(pattern, end, tokens);
    enter(tokens);
    bool is_alive = finish_step(tokens);
    for (size_t i = 0; is_alive && i < path_len;) {
        uint32_t code;

        i += utf8_next(path + i, path_len - i, &code);
        for (token = tokens; token->kind != TOKEN_END; token++) {
            if (token->is_active)
                take_char(token, end, code);
        }
        is_alive = finish_step(tokens);
    }
    while (token->kind != TOKEN_END)
        token++;
    return token->is_active;
}
