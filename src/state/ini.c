/* SPDX-License-Identifier: Apache-2.0 */

/* See ini.h. state/config.c uses it for hermes.conf, .env and the settings that the monitor
 * passes to the server; state/keys.c uses it for keys files. libinih is not used: it silently
 * cuts lines at a length fixed when it was built, and silently accepts values over several
 * lines. */

#include "state/ini.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "base/utf8.h"

#include <stdbool.h>
#include <string.h>

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

/* Removes spaces at both ends, in place. */
static char *trim(char *s)
{
    while (is_space(*s))
        s++;
    char *end = s + strlen(s);
    while (end > s && is_space(end[-1]))
        *--end = '\0';
    return s;
}

static bool is_printable(const char *s, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        bool control = (unsigned char)s[i] < 0x20 || s[i] == 0x7f;
        if (control && !is_space(s[i]))
            return false;
    }
    return utf8_valid(s, len);
}

/* Removes the quotes of "x" and 'x'; false when they do not match. */
static bool unquote(char **value)
{
    char *s = *value;
    if (*s != '"' && *s != '\'')
        return true;
    size_t len = strlen(s);
    if (len < 2 || s[len - 1] != *s)
        return false;
    s[len - 1] = '\0';
    *value = s + 1;
    return true;
}

struct reader {
    enum ini_form form;
    char section[128];
    ini_entry_fn *entry;
    ini_problem_fn *problem;
    void *context;
};

static void read_section(struct reader *r, unsigned number, char *line)
{
    size_t len = strlen(line);
    if (r->form == INI_ENV || line[len - 1] != ']' || len - 2 >= sizeof(r->section)) {
        r->problem(r->context, number, "this is neither a section nor `key = value`");
        return;
    }
    line[len - 1] = '\0';
    const char *name = trim(line + 1);
    memcpy(r->section, name, strlen(name) + 1);
}

static void read_line(struct reader *r, unsigned number, char *text)
{
    char *line = trim(text);
    if (*line == '\0' || *line == '#' || *line == ';')
        return;
    if (*line == '[') {
        read_section(r, number, line);
        return;
    }
    if (r->form == INI_ENV && str_has_prefix(line, "export "))
        line = trim(line + strlen("export "));
    char *equals = strchr(line, '=');
    if (!equals) {
        r->problem(r->context, number, "there is no `=`");
        return;
    }
    *equals = '\0';
    char *key = trim(line);
    char *value = trim(equals + 1);
    if (*key == '\0')
        r->problem(r->context, number, "there is no name before `=`");
    else if (r->form == INI_ENV && !unquote(&value))
        r->problem(r->context, number, "the quotes do not match");
    else
        r->entry(r->context, number, r->section, key, value);
}

void ini_read(const char *text, size_t len, enum ini_form form, ini_entry_fn *entry,
    ini_problem_fn *problem, void *context)
{
    struct reader r = {.form = form, .entry = entry, .problem = problem, .context = context};
    unsigned number = 0;
    for (size_t at = 0; at < len;) {
        const char *newline = memchr(text + at, '\n', len - at);
        size_t size = newline ? (size_t)(newline - text) - at : len - at;
        number++;
        if (is_printable(text + at, size)) {
            cleanup_free char *line = xstrndup(text + at, size);
            read_line(&r, number, line);
        } else {
            problem(context, number, "there are control characters or invalid UTF-8");
        }
        at += size + 1;
    }
}
