/* SPDX-License-Identifier: Apache-2.0 */

/* See diagnostics.h. The formats, each on a line of its own unless two are shown:
 *
 *   gcc, clang  main.c:3:5: error: TEXT
 *   go          ./main.go:3:5: TEXT
 *   javac       Main.java:3: error: TEXT      and two lines below, "    ^" for the column
 *   ld          main.c:(.text+0x3): TEXT
 *   tsc         main.ts(3,5): error TS2322: TEXT
 *   rustc       error[E0425]: TEXT            then " --> main.rs:3:5"
 *   esbuild     X [ERROR] TEXT                then "    main.ts:3:4:", whose columns begin at 0
 */

#include "run/diagnostics.h"

#include <stdbool.h>
#include <string.h>

enum { TEXT_MAX = 1000, NUMBER_MAX = 100000000 };

struct span {
    const char *at;
    size_t len;
};

const char *diagnostic_severity_name(enum diagnostic_severity severity)
{
    static const char *const names[] = {"error", "warning", "note"};
    return names[severity];
}

static void skip(struct span *s, size_t count)
{
    s->at += count;
    s->len -= count;
}

static bool take(struct span *s, const char *word)
{
    size_t len = strlen(word);
    if (s->len < len || memcmp(s->at, word, len) != 0)
        return false;
    skip(s, len);
    return true;
}

static void trim(struct span *s)
{
    while (s->len && (*s->at == ' ' || *s->at == '\t'))
        skip(s, 1);
    while (s->len && (s->at[s->len - 1] == ' ' || s->at[s->len - 1] == '\r'))
        s->len--;
}

static bool take_number(struct span *s, unsigned *ret)
{
    unsigned n = 0;
    size_t i = 0;
    for (; i < s->len && s->at[i] >= '0' && s->at[i] <= '9'; i++) {
        n = n * 10 + (unsigned)(s->at[i] - '0');
        if (n > NUMBER_MAX)
            return false;
    }
    if (i == 0)
        return false;
    skip(s, i);
    *ret = n;
    return true;
}

static bool take_severity(struct span *s, enum diagnostic_severity *ret)
{
    static const struct {
        const char *word;
        enum diagnostic_severity severity;
    } rows[] = {
        {"fatal error", DIAGNOSTIC_ERROR},
        {"error", DIAGNOSTIC_ERROR},
        {"warning", DIAGNOSTIC_WARNING},
        {"note", DIAGNOSTIC_NOTE},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (take(s, rows[i].word)) {
            *ret = rows[i].severity;
            return true;
        }
    }
    return false;
}

static void set_text(struct diagnostic *d, struct span text)
{
    trim(&text);
    d->text = text.at;
    d->text_len = text.len < TEXT_MAX ? text.len : TEXT_MAX;
}

/* The compilers work in /box, where the request's files lie. */
static bool set_file(struct diagnostic *d, struct span file)
{
    if (!take(&file, "/box/"))
        (void)take(&file, "./");
    if (file.len == 0 || *file.at == ':' || memchr(file.at, ' ', file.len))
        return false;
    d->file = file.at;
    d->file_len = file.len;
    return true;
}

/* FILE:LINE or FILE:LINE:COLUMN at the start of `s`; leaves what follows. A name may have
 * colons, so the first colon with a number behind it counts. */
static bool take_place(struct span *s, struct diagnostic *d)
{
    for (size_t i = 1; i + 1 < s->len; i++) {
        struct span rest = {s->at + i + 1, s->len - i - 1};
        if (s->at[i] != ':' || !take_number(&rest, &d->line))
            continue;
        struct span column = rest;
        if (take(&column, ":") && take_number(&column, &d->column))
            rest = column;
        bool is_file = set_file(d, (struct span){s->at, i});
        *s = rest;
        return is_file;
    }
    return false;
}

/* gcc, clang, go, javac. Only go leaves the severity out, and go names the column. */
static bool read_colons(struct span line, struct diagnostic *d)
{
    if (!take_place(&line, d) || !take(&line, ": "))
        return false;
    struct span text = line;
    if (take_severity(&text, &d->severity) && take(&text, ": "))
        line = text;
    else if (d->column == 0)
        return false;
    else
        d->severity = DIAGNOSTIC_ERROR;
    set_text(d, line);
    return true;
}

static bool read_linker(struct span line, struct diagnostic *d)
{
    const char *colon = memmem(line.at, line.len, ":(", 2);
    const char *end =
        colon ? memmem(colon, line.len - (size_t)(colon - line.at), "): ", 3) : NULL;
    if (!end || !set_file(d, (struct span){line.at, (size_t)(colon - line.at)}))
        return false;
    skip(&line, (size_t)(end + 3 - line.at));
    set_text(d, line);
    return true;
}

static bool read_tsc(struct span line, struct diagnostic *d)
{
    const char *open = memchr(line.at, '(', line.len);
    if (!open || !set_file(d, (struct span){line.at, (size_t)(open - line.at)}))
        return false;
    skip(&line, (size_t)(open + 1 - line.at));
    if (!take_number(&line, &d->line) || !take(&line, ",") || !take_number(&line, &d->column) ||
        !take(&line, "): ") || !take_severity(&line, &d->severity))
        return false;
    set_text(d, line);
    return true;
}

/* The first of the two lines of rustc and esbuild: severity and text, the place follows. */
static bool read_heading(struct span line, struct diagnostic *d)
{
    const char *mark = memmem(line.at, line.len, "] ", 2);
    bool is_esbuild = mark && memmem(line.at, (size_t)(mark - line.at), "[ERROR", 6);
    bool is_warning = mark && memmem(line.at, (size_t)(mark - line.at), "[WARNING", 8);
    if (is_esbuild || is_warning) {
        d->severity = is_warning ? DIAGNOSTIC_WARNING : DIAGNOSTIC_ERROR;
        skip(&line, (size_t)(mark + 2 - line.at));
    } else {
        if (!take_severity(&line, &d->severity))
            return false;
        const char *close = line.len && *line.at == '[' ? memchr(line.at, ']', line.len) : NULL;
        if (close)
            skip(&line, (size_t)(close + 1 - line.at));
        if (!take(&line, ": "))
            return false;
    }
    set_text(d, line);
    return true;
}

/* The second of the two lines. */
static bool read_place(struct span line, struct diagnostic *d)
{
    trim(&line);
    bool is_rust = take(&line, "--> ");
    if (!take_place(&line, d))
        return false;
    if (is_rust)
        return line.len == 0;
    d->column++;
    return line.len == 1 && *line.at == ':';
}

/* javac marks the column by a caret alone on a line. */
static unsigned caret_column(struct span line)
{
    size_t i = 0;
    while (i < line.len && line.at[i] == ' ')
        i++;
    return i + 1 == line.len && line.at[i] == '^' ? (unsigned)i + 1 : 0;
}

static struct span next_line(struct span *s)
{
    const char *end = memchr(s->at, '\n', s->len);
    struct span line = {s->at, end ? (size_t)(end - s->at) : s->len};
    skip(s, line.len + (end ? 1 : 0));
    return line;
}

size_t diagnostics_find(
    struct diagnostic *list, size_t count, const char *output, size_t output_len)
{
    static bool (*const formats[])(struct span, struct diagnostic *) = {
        read_colons, read_linker, read_tsc};
    struct span rest = {output, output_len};
    struct diagnostic heading = {0};
    while (rest.len && count < DIAGNOSTICS_MAX) {
        struct span line = next_line(&rest);
        struct diagnostic found = heading;
        if (heading.text && read_place(line, &found)) {
            list[count++] = found;
            heading = (struct diagnostic){0};
            continue;
        }
        unsigned column = caret_column(line);
        if (column && count && list[count - 1].column == 0)
            list[count - 1].column = column;
        for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++) {
            found = (struct diagnostic){0};
            if (formats[i](line, &found)) {
                list[count++] = found;
                break;
            }
        }
        found = (struct diagnostic){0};
        if (read_heading(line, &found))
            heading = found;
    }
    return count;
}
