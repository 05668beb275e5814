/* SPDX-License-Identifier: Apache-2.0 */

/* See java_source.h. A tokenizer rather than a pattern: `class` inside a comment, a string or a
 * text block is not a class. Tokens are words and single punctuation characters. Counting
 * braces tells a top-level type from a nested one. The text is a stranger's, so nothing
 * recurses and every read is bounded by the end. */

#include "run/java_source.h"

#include "base/alloc.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

struct token {
    const char *at;
    size_t len; /* 0 at the end of the text */
};

static bool is_word_char(unsigned char c)
{
    return isalnum(c) || c == '_' || c == '$' || c >= 0x80;
}

/* Skips a comment that begins at p; returns p itself if there is none. */
static const char *skip_comment(const char *p, const char *end)
{
    if (end - p < 2 || p[0] != '/')
        return p;
    if (p[1] == '/') {
        const char *nl = memchr(p, '\n', (size_t)(end - p));

        return nl != NULL ? nl + 1 : end;
    }
    if (p[1] != '*')
        return p;
    const char *close = memmem(p + 2, (size_t)(end - p - 2), "*/", 2);
    return close != NULL ? close + 2 : end;
}

/* Skips a string, a text block or a character that begins at p. */
static const char *skip_literal(const char *p, const char *end)
{
    char quote = *p;
    bool block = quote == '"' && end - p >= 3 && p[1] == '"' && p[2] == '"';

    for (p += block ? 3 : 1; p < end; p++) {
        if (*p == '\\' && p + 1 < end)
            p++;
        else if (!block && (*p == quote || *p == '\n'))
            return p + 1;
        else if (block && end - p >= 3 && memcmp(p, "\"\"\"", 3) == 0)
            return p + 3;
    }
    return end;
}

static struct token next_token(const char **at, const char *end)
{
    const char *p = *at;

    while (p < end) {
        const char *after = skip_comment(p, end);

        if (after != p)
            p = after;
        else if (*p == '"' || *p == '\'')
            p = skip_literal(p, end);
        else if (isspace((unsigned char)*p))
            p++;
        else
            break;
    }
    struct token t = {.at = p};
    while (p < end && is_word_char((unsigned char)*p))
        p++;
    t.len = (size_t)(p - t.at);
    if (t.len == 0 && p < end) {
        t.len = 1;
        p++;
    }
    *at = p;
    return t;
}

static bool is(struct token t, const char *word)
{
    return t.len == strlen(word) && memcmp(t.at, word, t.len) == 0;
}

static bool is_type_word(struct token t)
{
    return is(t, "class") || is(t, "interface") || is(t, "enum") || is(t, "record");
}

static char *copy(struct token t)
{
    return xstrndup(t.at, t.len);
}

/* Joins the tokens up to ';' into "a.b.c". */
static char *read_package(const char **at, const char *end)
{
    char name[256];
    size_t len = 0;

    for (;;) {
        struct token t = next_token(at, end);

        if (t.len == 0 || is(t, ";") || len + t.len >= sizeof(name))
            break;
        memcpy(name + len, t.at, t.len);
        len += t.len;
    }
    return len > 0 ? xstrndup(name, len) : NULL;
}

/* State of the walk over one file. */
struct scan {
    struct java_source *out;
    struct token type; /* top-level type being read */
    struct token before_last, last;
    unsigned depth;
    bool is_public;
};

static void begin_type(struct scan *s, struct token name)
{
    s->type = name;
    if (s->out->first_type == NULL)
        s->out->first_type = copy(name);
    if (s->is_public && s->out->public_type == NULL)
        s->out->public_type = copy(name);
    s->is_public = false;
}

static void see_token(struct scan *s, struct token t)
{
    if (is(t, "{")) {
        s->depth++;
    } else if (is(t, "}")) {
        s->depth -= s->depth > 0;
        s->is_public = false;
    } else if (s->depth == 0) {
        if (is(t, "public"))
            s->is_public = true;
        else if (is(t, ";"))
            s->is_public = false;
        /* `@interface` is a type too. `record` and `enum` can be ordinary words elsewhere. */
        else if (is_type_word(s->last) && is_word_char((unsigned char)*t.at))
            begin_type(s, t);
    } else if (s->depth == 1 && is(t, "(") && is(s->last, "main") &&
               is(s->before_last, "void") && s->type.len > 0 && s->out->main_type == NULL) {
        s->out->main_type = copy(s->type);
    }
    s->before_last = s->last;
    s->last = t;
}

void java_source_scan(const char *text, size_t len, struct java_source *ret)
{
    const char *at = text;
    const char *end = text + len;
    struct scan s = {.out = ret};

    *ret = (struct java_source){0};
    for (;;) {
        struct token t = next_token(&at, end);

        if (t.len == 0)
            return;
        if (s.depth == 0 && ret->package == NULL && ret->first_type == NULL && is(t, "package"))
            ret->package = read_package(&at, end);
        else
            see_token(&s, t);
    }
}

void java_source_done(struct java_source *source)
{
    free(source->package);
    free(source->public_type);
    free(source->main_type);
    free(source->first_type);
    *source = (struct java_source){0};
}
