/* SPDX-License-Identifier: Apache-2.0 */

/* See variables.h. The state has one line per variable, as `declare -p` prints it:
 * declare -FLAGS NAME=VALUE, or without =VALUE. bash writes a line end in a value as \n. */

#include "bash/variables.h"

#include <stdbool.h>
#include <string.h>

#include "bash/frame.h"

enum { VARIABLES_MAX = 1000, TEXT_MAX = 200 }; /* rows; bytes of a name or a value */

static const char DECLARE[] = "declare -";

/* Set by bash itself or given to every box. A name that ends in * stands for all names with
 * that beginning. */
static bool is_common(const char *name, size_t len)
{
    static const char *const names[] = {"BASH*", "COLUMNS", "COMP_*", "DIRSTACK", "EPOCH*",
        "EUID", "FUNCNAME", "GROUPS", "HIST*", "HOME", "HOSTNAME", "HOSTTYPE", "IFS", "LANG",
        "LC_*", "LINENO", "LINES", "LOGNAME", "MACHTYPE", "OLDPWD", "OPTERR", "OPTIND",
        "OSTYPE", "PATH", "PIPESTATUS", "PPID", "PS4", "PWD", "RANDOM", "SECONDS", "SHELL",
        "SHELLOPTS", "SHLVL", "SRANDOM", "TERM", "TMPDIR", "UID", "USER", "_"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        size_t n = strlen(names[i]);
        bool is_prefix = names[i][n - 1] == '*';
        if (is_prefix ? len >= n - 1 && memcmp(name, names[i], n - 1) == 0
                      : len == n && memcmp(name, names[i], n) == 0)
            return true;
    }
    return false;
}

static const char *type_of(const char *flags, size_t len)
{
    static const struct {
        char flag;
        const char *type;
    } rows[] = {{'A', "map"}, {'a', "array"}, {'i', "integer"}, {'n', "reference"}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (memchr(flags, rows[i].flag, len))
            return rows[i].type;
    }
    return "string";
}

/* Appends at most TEXT_MAX bytes, and no part of a character. */
static void append_text(struct buf *b, const char *text, size_t len)
{
    size_t shown = len <= TEXT_MAX ? len : TEXT_MAX;
    while (shown < len && shown && ((unsigned char)text[shown] & 0xc0) == 0x80)
        shown--;
    (void)json_append(b, text, shown);
}

struct variable {
    const char *type;
    const char *name, *value;
    size_t name_len, value_len;
};

/* Reads a line that follows DECLARE. Returns whether it is a variable to show. */
static bool read_variable(const char *line, size_t len, struct variable *v)
{
    const char *end = line + len;
    const char *space = memchr(line, ' ', len);
    if (!space)
        return false;
    v->type = type_of(line, (size_t)(space - line));
    v->name = space + 1;
    const char *equals = memchr(v->name, '=', (size_t)(end - v->name));
    v->name_len = (size_t)((equals ? equals : end) - v->name);
    v->value = equals ? equals + 1 : end;
    v->value_len = (size_t)(end - v->value);
    return !is_common(v->name, v->name_len);
}

static void append_variable(struct buf *b, const struct variable *v, bool is_first)
{
    (void)buf_append_str(b, is_first ? "{\"name\":" : ",{\"name\":");
    append_text(b, v->name, v->name_len);
    (void)buf_printf(b, ",\"type\":\"%s\",\"size\":null,\"preview\":", v->type);
    append_text(b, v->value, v->value_len);
    (void)buf_append_str(b, "}");
}

void variables_list(struct buf *b, const char *state, size_t len)
{
    const char *state_end = state + len;
    size_t head = strlen(DECLARE);
    size_t count = 0;
    bool has_begun = false;
    (void)buf_append_str(b, "{\"variables\":[");
    for (const char *at = state; at < state_end;) {
        const char *line_end = memchr(at, '\n', (size_t)(state_end - at));
        size_t line_len = (size_t)((line_end ? line_end : state_end) - at);
        bool is_declare = line_len > head && memcmp(at, DECLARE, head) == 0;
        struct variable v;
        if (!is_declare && has_begun)
            break; /* functions follow; their text may have such lines, too */
        has_begun |= is_declare;
        if (is_declare && read_variable(at + head, line_len - head, &v) &&
            count++ < VARIABLES_MAX)
            append_variable(b, &v, count == 1);
        at += line_len + 1;
    }
    (void)buf_printf(b, "],\"more\":%zu}", count < VARIABLES_MAX ? 0 : count - VARIABLES_MAX);
}
