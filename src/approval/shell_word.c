/* SPDX-License-Identifier: Apache-2.0 */

/* Words of the tree. Backslashes, quotes and $'...' are undone, so that `r\m`, "r"m and
 * $'\x72m' are the same word. A word that the shell expands is dynamic. */

#include "approval/shell_internal.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "base/utf8.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { WORD_MAX = SHELL_TEXT_MAX, QUOTES_MAX = 4 };

struct reading {
    const struct shell_walk *w;
    struct buf shape;
    bool is_literal;
    bool is_single;
};

void shell_words_add(struct shell_words *words, const struct shell_word *word)
{
    words->items = xreallocarray(words->items, words->count + 1, sizeof(*words->items));
    words->items[words->count++] = (struct shell_word){.shape = xstrdup(word->shape),
        .source = xstrdup(word->source),
        .is_literal = word->is_literal,
        .is_single = word->is_single,
        .is_open = word->is_open,
        .directory = word->directory};
}

void shell_words_done(struct shell_words *words)
{
    for (size_t i = 0; i < words->count; i++) {
        free(words->items[i].shape);
        free(words->items[i].source);
    }
    free(words->items);
    *words = (struct shell_words){0};
}

void shell_word_set(struct shell_word *ret, const char *value)
{
    *ret = (struct shell_word){.shape = xstrdup(value),
        .source = xstrdup(value),
        .is_literal = true,
        .is_single = true};
}

json_t *shell_word_json(const struct shell_word *word)
{
    return word->is_literal ? json_string(word->shape)
                            : json_pack("{s:s}", "dynamic", word->source);
}

long shell_offset(const struct shell_walk *w, const json_t *node, const char *which)
{
    const json_t *value = json_object_get(json_object_get(node, which), "Offset");
    json_int_t at = json_integer_value(value);
    return json_is_integer(value) && at >= 0 && (size_t)at <= w->len ? (long)at : -1;
}

const char *shell_source(const struct shell_walk *w, const json_t *node, size_t *ret_len)
{
    long from = shell_offset(w, node, "Pos");
    long to = shell_offset(w, node, "End");
    if (from < 0 || to < from)
        return NULL;
    *ret_len = (size_t)(to - from);
    return w->text + from;
}

/* --- quotes */

static int add(struct reading *r, const char *data, size_t len)
{
    return buf_append(&r->shape, data, len) < 0 ? -EBADMSG : 0;
}

static int add_unknown(struct reading *r)
{
    r->is_literal = false;
    return add(r, &(char){SHELL_UNKNOWN}, 1);
}

/* Characters that the shell expands where nothing quotes them. */
static bool is_active(const char *text, size_t at, bool is_first)
{
    if (strchr("*?[", text[at]) || (text[at] == '{' && text[at + 1] != '}'))
        return true;
    return text[at] == '~' && (at ? strchr("=:", text[at - 1]) != NULL : is_first);
}

static int add_bare(struct reading *r, const char *text, size_t len)
{
    bool is_test = str_eq(text, "[") && r->shape.len == 0; /* the command `[` */
    int e = 0;
    for (size_t i = 0; e == 0 && i < len; i++) {
        if (text[i] == '\\') {
            i++;
            if (i < len && text[i] != '\n')
                e = add(r, text + i, 1);
            continue;
        }
        if (!is_test && is_active(text, i, r->shape.len == 0))
            r->is_literal = r->is_single = false;
        e = add(r, text + i, 1);
    }
    return e;
}

static int add_double(struct reading *r, const char *text, size_t len)
{
    int e = 0;
    for (size_t i = 0; e == 0 && i < len; i++) {
        bool is_quoted = text[i] == '\\' && i + 1 < len && strchr("$`\"\\\n", text[i + 1]);
        i += is_quoted;
        if (!is_quoted || text[i] != '\n')
            e = add(r, text + i, 1);
    }
    return e;
}

static int add_code_point(struct reading *r, unsigned long code)
{
    char out[4];
    size_t len = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    static const unsigned char lead[] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (size_t i = len; i-- > 1; code >>= 6)
        out[i] = (char)(0x80 | (code & 0x3f));
    out[0] = (char)(lead[len] | code);
    return add(r, out, len);
}

static size_t digits(const char *text, size_t len, int base, size_t most, unsigned long *ret)
{
    size_t n = 0;
    *ret = 0;
    for (; n < len && n < most; n++) {
        int c = tolower((unsigned char)text[n]);
        int value = isdigit(c) ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : base;
        if (value >= base)
            break;
        *ret = *ret * (unsigned long)base + (unsigned long)value;
    }
    return n;
}

/* One escape of $'...' after the backslash. Returns the characters it took, or a negative
 * errno. *ret_is_end: the value is NUL, which ends the string. */
static int add_escape(struct reading *r, const char *text, size_t len, bool *ret_is_end)
{
    static const char plain[] = "abeEfnrtv\\'\"?";
    static const char values[] = "\a\b\033\033\f\n\r\t\v\\'\"?";
    unsigned long code;
    const char *known = strchr(plain, text[0]);
    if (text[0] && known)
        return add(r, &values[known - plain], 1) < 0 ? -EBADMSG : 1;
    if (text[0] >= '0' && text[0] <= '7') {
        size_t n = digits(text, len, 8, 3, &code);
        *ret_is_end = (code & 0xff) == 0;
        return !*ret_is_end && add(r, &(char){(char)code}, 1) < 0 ? -EBADMSG : (int)n;
    }
    if (text[0] == 'c' && len > 1) {
        *ret_is_end = (text[1] & 0x1f) == 0;
        return !*ret_is_end && add(r, &(char){(char)(text[1] & 0x1f)}, 1) < 0 ? -EBADMSG : 2;
    }
    size_t most = text[0] == 'x' ? 2 : text[0] == 'u' ? 4 : text[0] == 'U' ? 8 : 0;
    size_t n = most ? digits(text + 1, len - 1, 16, most, &code) : 0;
    if (!n) /* bash keeps the backslash */
        return add(r, "\\", 1) < 0 || add(r, text, 1) < 0 ? -EBADMSG : 1;
    *ret_is_end = code == 0;
    int e = *ret_is_end || code > 0x10ffff ? 0
            : text[0] == 'x'               ? add(r, &(char){(char)code}, 1)
                                           : add_code_point(r, code);
    return e < 0 ? e : (int)(n + 1);
}

static int add_dollar_single(struct reading *r, const char *text, size_t len)
{
    bool is_end = false;
    for (size_t i = 0; i < len && !is_end; i++) {
        if (text[i] != '\\' || i + 1 == len) {
            if (add(r, text + i, 1) < 0)
                return -EBADMSG;
            continue;
        }
        int n = add_escape(r, text + i + 1, len - i - 1, &is_end);
        if (n < 0)
            return n;
        i += (size_t)n;
    }
    return 0;
}

/* --- parts */

static int add_parts(struct reading *r, const json_t *parts, unsigned quotes);

/* A word that begins with $HOME is shown with ~ instead. "$@" may be any number of words. */
static int add_parameter(struct reading *r, const json_t *part, bool is_quoted)
{
    const char *name =
        json_string_value(json_object_get(json_object_get(part, "Param"), "Value"));
    const json_t *index = json_object_get(part, "Index");
    bool is_plain = !index && !json_object_get(part, "Exp") &&
                    !json_object_get(part, "Slice") && !json_object_get(part, "Repl") &&
                    !json_is_true(json_object_get(part, "Excl"));
    r->is_single = r->is_single && is_quoted && !index && name && !str_eq(name, "@") &&
                   !json_is_true(json_object_get(part, "Excl"));
    if (is_plain && str_eq(name, "HOME") && r->shape.len == 0) {
        r->is_literal = false;
        return add(r, "~", 1);
    }
    return add_unknown(r);
}

static int add_part(struct reading *r, const json_t *part, unsigned quotes)
{
    const char *type = json_string_value(json_object_get(part, "Type"));
    const json_t *value = json_object_get(part, "Value");
    const char *text = json_string_value(value);
    size_t len = json_string_length(value);
    if (text && strlen(text) != len)
        return -EBADMSG;
    if (str_eq(type, "Lit"))
        return !text ? -EBADMSG : quotes ? add_double(r, text, len) : add_bare(r, text, len);
    if (str_eq(type, "SglQuoted"))
        return json_is_true(json_object_get(part, "Dollar"))
                   ? add_dollar_single(r, text ? text : "", text ? len : 0)
                   : add(r, text ? text : "", text ? len : 0);
    if (str_eq(type, "DblQuoted")) {
        if (json_is_true(json_object_get(part, "Dollar")))
            r->is_literal = false; /* $"..." is translated */
        return quotes < QUOTES_MAX ? add_parts(r, json_object_get(part, "Parts"), quotes + 1)
                                   : -EBADMSG;
    }
    if (str_eq(type, "ParamExp"))
        return add_parameter(r, part, quotes > 0);
    r->is_single = r->is_single && (quotes > 0 || str_eq(type, "ProcSubst"));
    return type ? add_unknown(r) : -EBADMSG;
}

static int add_parts(struct reading *r, const json_t *parts, unsigned quotes)
{
    int e = !parts || json_is_array(parts) ? 0 : -EBADMSG;
    for (size_t i = 0; e == 0 && i < json_array_size(parts); i++)
        e = add_part(r, json_array_get(parts, i), quotes);
    return e;
}

/* ~+, ~- and ~1 are directories of the shell's own: a `cd` changes them. */
static bool has_own_directory(const struct reading *r)
{
    const char *at = !r->is_literal && r->shape.data ? r->shape.data : "";
    while ((at = strchr(at, '~')) != NULL) {
        at++;
        if (*at && strchr("+-0123456789", *at))
            return true;
    }
    return false;
}

char *shell_word_shape(const struct shell_walk *w, const json_t *node)
{
    struct reading r = {.w = w};
    size_t len = 0;
    buf_init(&r.shape, WORD_MAX);
    int e = add_parts(&r, json_object_get(node, "Parts"), 0);
    char *shape = buf_take(&r.shape, &len);
    if (e < 0) {
        free(shape);
        shape = NULL;
    }
    return shape;
}

int shell_word_read(const struct shell_walk *w, const json_t *node, struct shell_word *ret)
{
    struct reading r = {.w = w, .is_literal = true, .is_single = true};
    size_t len = 0;
    const char *source = shell_source(w, node, &len);
    if (!source || !json_is_object(node))
        return -EBADMSG;
    buf_init(&r.shape, WORD_MAX);
    int e = add_parts(&r, json_object_get(node, "Parts"), 0);
    if (e < 0) {
        buf_done(&r.shape);
        return e;
    }
    bool is_own = has_own_directory(&r);
    char *shape = buf_take(&r.shape, &len);
    /* Bytes that are not text cannot be shown as they are. SHELL_UNKNOWN must not come from
     * the text itself. */
    bool is_text = utf8_valid(shape, len) && (!r.is_literal || !strchr(shape, SHELL_UNKNOWN));
    size_t source_len = 0;
    (void)shell_source(w, node, &source_len);
    *ret = (struct shell_word){.shape = shape,
        .source = shell_source_with_loops(w, node, utf8_repair(source, source_len, NULL)),
        .is_literal = r.is_literal && is_text,
        .is_single = r.is_single,
        .is_open = !r.is_literal && (is_own || shell_is_open(w, node)),
        .directory = w->directory};
    return 0;
}
