/* SPDX-License-Identifier: Apache-2.0 */

/* See template.h. Templates are checked when runtime.json is loaded, so expansion fails only
 * for a value that the request did not provide, or for a result that is too long. */

#include "lang/template.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "base/cleanup.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Bytes of one expanded argument. */
enum { TEMPLATE_MAX = 64 * 1024 };

struct word {
    const char *name;
    size_t offset;
    bool is_file; /* the value is a file name of the request: template_safe_name() applies */
};

static const struct word words[] = {
    {"home", offsetof(struct template_vars, home), false},
    {"entry", offsetof(struct template_vars, entry), true},
    {"entry_dir", offsetof(struct template_vars, entry_dir), false},
    {"main_class", offsetof(struct template_vars, main_class), false},
};

static const struct word lists[] = {
    {"args", offsetof(struct template_vars, args), false},
    {"compile_args", offsetof(struct template_vars, compile_args), false},
    {"sources", offsetof(struct template_vars, sources), true},
};

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static const struct word *find_word(
    const struct word *table, size_t count, const char *name, size_t len)
{
    for (size_t i = 0; i < count; i++) {
        if (strlen(table[i].name) == len && memcmp(table[i].name, name, len) == 0)
            return &table[i];
    }
    return NULL;
}

static const struct limit_info *find_limit(const char *name, size_t len)
{
    for (size_t i = 0; i < limit_count; i++) {
        if (strlen(limit_table[i].name) == len && memcmp(limit_table[i].name, name, len) == 0)
            return &limit_table[i];
    }
    return NULL;
}

static size_t name_length(const char *s)
{
    size_t len = 0;

    while (islower((unsigned char)s[len]) || s[len] == '_')
        len++;
    return len;
}

/* Applies "*3/4" up to the closing brace. Returns the end, which is at '}' when well formed. */
static const char *arithmetic(const char *s, uint64_t *value)
{
    while (*s != '\0' && strchr("*/+-", *s) != NULL && isdigit((unsigned char)s[1])) {
        char op = *s;
        char *end;
        uint64_t n = strtoull(s + 1, &end, 10);

        if (op == '*')
            *value *= n;
        else if (op == '/')
            *value /= n != 0 ? n : 1;
        else if (op == '+')
            *value += n;
        else
            *value = *value > n ? *value - n : 0;
        s = end;
    }
    return s;
}

/* The list when text is exactly one list such as {args}, else NULL. */
static const struct word *whole_list(const char *text)
{
    size_t len = text[0] == '{' ? name_length(text + 1) : 0;

    if (len == 0 || strcmp(text + 1 + len, "}") != 0)
        return NULL;
    return find_word(lists, COUNT(lists), text + 1, len);
}

const char *template_problem(const char *text, bool list_allowed)
{
    if (whole_list(text) != NULL)
        return list_allowed ? NULL : "a list such as {args} has no place here";
    for (const char *s = text; *s != '\0'; s++) {
        uint64_t ignored = 1;

        if (*s == '}' && s[1] != '}')
            return "has a lone '}' (write '}}')";
        if ((*s == '{' && s[1] == '{') || *s == '}') {
            s++;
            continue;
        }
        if (*s != '{')
            continue;
        size_t len = name_length(s + 1);
        const char *end = s + 1 + len;
        if (find_limit(s + 1, len) != NULL)
            end = arithmetic(end, &ignored);
        else if (find_word(lists, COUNT(lists), s + 1, len) != NULL)
            return "has a list such as {args} inside an argument";
        else if (find_word(words, COUNT(words), s + 1, len) == NULL)
            return "has an unknown {placeholder}";
        if (*end != '}')
            return "has a malformed {placeholder}";
        s = end;
    }
    return NULL;
}

bool template_uses(const struct strv *templates, const char *name)
{
    size_t len = strlen(name);

    for (size_t i = 0; i < templates->count; i++) {
        const char *s = templates->items[i];

        while ((s = strchr(s, '{')) != NULL) {
            s++;
            if (name_length(s) == len && memcmp(s, name, len) == 0)
                return true;
        }
    }
    return false;
}

char *template_safe_name(const char *name)
{
    unsigned char c = (unsigned char)name[0];

    if (isalnum(c) || c == '_' || c == '.' || c >= 0x80)
        return xstrdup(name);
    return xasprintf("./%s", name);
}

static int expand_list(const struct word *list, const struct template_vars *vars,
    struct strv *ret, const char **ret_name)
{
    const struct strv *items = *(const struct strv *const *)((const char *)vars + list->offset);

    if (items == NULL) {
        *ret_name = list->name;
        return -ENOENT;
    }
    for (size_t i = 0; i < items->count; i++) {
        if (list->is_file)
            strv_add_owned(ret, template_safe_name(items->items[i]));
        else
            strv_add(ret, items->items[i]);
    }
    return 0;
}

static uint64_t limit_number(const struct limit_info *info, const struct run_limits *limits)
{
    uint64_t value = *(const uint64_t *)((const char *)limits + info->offset);

    return (value + info->scale - 1) / info->scale;
}

/* Appends the value of {name...}. *at points behind '{' and moves to '}'. */
static int expand_word(
    const char **at, const struct template_vars *vars, struct buf *out, const char **ret_name)
{
    size_t len = name_length(*at);
    const struct limit_info *info = find_limit(*at, len);
    const struct word *word = find_word(words, COUNT(words), *at, len);

    if (info != NULL) {
        uint64_t value = limit_number(info, vars->limits);

        *at = arithmetic(*at + len, &value);
        return buf_printf(out, "%" PRIu64, value != 0 ? value : 1);
    }
    *at += len;
    const char *text =
        word != NULL ? *(const char *const *)((const char *)vars + word->offset) : NULL;
    if (text == NULL) {
        *ret_name = word != NULL ? word->name : "?";
        return -ENOENT;
    }
    cleanup_free char *safe = word->is_file ? template_safe_name(text) : xstrdup(text);
    return buf_append_str(out, safe);
}

int template_expand(
    const char *text, const struct template_vars *vars, struct strv *ret, const char **ret_name)
{
    const struct word *list = whole_list(text);
    cleanup_buf struct buf out = {0};
    int r = 0;

    if (list != NULL)
        return expand_list(list, vars, ret, ret_name);
    buf_init(&out, TEMPLATE_MAX);
    for (const char *s = text; *s != '\0' && r == 0; s++) {
        if ((*s == '{' || *s == '}') && s[1] == *s) {
            r = buf_append(&out, s, 1);
            s++;
        } else if (*s == '{') {
            s++;
            r = expand_word(&s, vars, &out, ret_name);
        } else {
            r = buf_append(&out, s, 1);
        }
    }
    if (r < 0)
        return r;
    size_t len;
    strv_add_owned(ret, buf_take(&out, &len));
    return 0;
}
