/* SPDX-License-Identifier: Apache-2.0 */

/* The texts that are made from an option table: --help and the man page. */

#include "cli/options.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/wrap.h"
#include "cli/color.h"
#include "version.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

enum {
    USAGE_COLUMN = sizeof("usage: ") - 1,
    TEXT_COLUMN = 29,   /* of --help */
    HELP_MAX = 1 << 16, /* bytes of one text in it */
};

/* The date of the last change to the form of the man pages. A date of the build would make
 * builds differ. */
#define MAN_DATE "2026-11-16"

/* Prints a text whose first line begins at `column`. */
static void print_wrapped(const char *text, int column, int indent)
{
    cleanup_buf struct buf lines;
    buf_init(&lines, HELP_MAX);
    (void)wrap_text(&lines, text, column, indent, wrap_width());
    (void)fputs(lines.data ? lines.data : "", stdout);
}

static void print_row(const struct option_row *row)
{
    char letter[8] = "    ";
    if (row->key < 256)
        (void)snprintf(letter, sizeof(letter), "-%c, ", row->key);
    int column = printf(
        "  %s--%s%s%s", letter, row->name, row->value ? "=" : "", row->value ? row->value : "");
    column += column < TEXT_COLUMN ? printf("%*s", TEXT_COLUMN - column, "") : printf("  ");
    print_wrapped(row->text, column, TEXT_COLUMN);
}

void options_help(const struct option_table *table)
{
    size_t count;
    cleanup_free struct option_row *rows = options_rows(table, &count);
    const char *operands = table->operands ? table->operands : "";
    cleanup_free char *usage =
        xasprintf("%s [OPTION...]%s%s", table->command, *operands ? " " : "", operands);
    (void)printf("%susage:%s ", color_on(stdout, COLOR_STRONG), color_off(stdout));
    print_wrapped(usage, USAGE_COLUMN, USAGE_COLUMN);
    (void)putchar('\n');
    print_wrapped(table->before, 0, 0);
    (void)putchar('\n');
    for (size_t i = 0; i < count; i++)
        print_row(&rows[i]);
    if (table->after) {
        (void)putchar('\n');
        print_wrapped(table->after, 0, 0);
    }
}

/* Prints text for roff: a leading dot or quote and backslashes have a meaning there. */
static void man_text(const char *text)
{
    bool at_start = true;
    for (; *text; text++) {
        if (at_start && (*text == '.' || *text == '\''))
            (void)fputs("\\&", stdout);
        if (*text == '\\')
            (void)fputs("\\e", stdout);
        else if (*text == '-')
            (void)fputs("\\-", stdout);
        else if (*text == '`')
            (void)fputs("\\(ga", stdout);
        else
            (void)putchar(*text);
        at_start = *text == '\n';
    }
}

/* Prints paragraphs. Lines that begin with a space are examples, which keep their line breaks.
 */
void options_man_text(const char *text)
{
    bool is_example = false;
    while (*text) {
        size_t len = strcspn(text, "\n");
        if (len == 0 || (*text == ' ') != is_example)
            (void)fputs(is_example ? ".EE\n" : "", stdout);
        if (len && *text == ' ' && !is_example)
            (void)fputs(".PP\n.EX\n", stdout);
        else if (len == 0 && text[1] && text[1] != ' ' && text[1] != '\n')
            (void)fputs(".PP\n", stdout);
        is_example = len && *text == ' ';
        char line[4096];
        (void)snprintf(line, sizeof(line), "%.*s", (int)len, text);
        man_text(line);
        if (len)
            (void)putchar('\n');
        text += len + (text[len] != '\0');
    }
    if (is_example)
        (void)fputs(".EE\n", stdout);
}

static void man_option(const struct option_row *row)
{
    (void)fputs(".TP\n", stdout);
    if (row->key < 256)
        (void)printf("\\fB\\-%c\\fR, ", row->key);
    (void)fputs("\\fB\\-\\-", stdout);
    man_text(row->name);
    (void)fputs("\\fR", stdout);
    if (row->value) {
        (void)fputs("=\\fI", stdout);
        man_text(row->value);
        (void)fputs("\\fR", stdout);
    }
    (void)putchar('\n');
    man_text(row->text);
    (void)putchar('\n');
}

void options_man_begin(const struct option_table *table)
{
    (void)fputs(".TH \"", stdout);
    for (const char *p = table->command; *p; p++)
        (void)putchar(*p == ' ' ? '-' : toupper((unsigned char)*p));
    (void)printf(
        "\" \"1\" \"" MAN_DATE "\" \"hermes %s\" \"Hermes\"\n.SH NAME\n", HERMES_VERSION);
    for (const char *p = table->command; *p; p++)
        (void)fputs(*p == ' ' || *p == '-' ? "\\-" : (char[]){*p, '\0'}, stdout);
    (void)fputs(" \\- ", stdout);
    man_text(table->summary);
    (void)fputs("\n.SH SYNOPSIS\n\\fB", stdout);
    man_text(table->command);
    (void)fputs("\\fR [\\fIOPTION\\fR...]", stdout);
    if (table->operands) {
        (void)putchar(' ');
        man_text(table->operands);
    }
    (void)fputs("\n.SH DESCRIPTION\n", stdout);
    options_man_text(table->before);
}

void options_man_options(const struct option_table *table)
{
    size_t count;
    cleanup_free struct option_row *rows = options_rows(table, &count);
    for (size_t i = 0; i < count; i++)
        man_option(&rows[i]);
}

void options_man_end(void)
{
    (void)fputs(".SH SEE ALSO\n\\fBhermes\\fR(1)\n", stdout);
}

void options_man(const struct option_table *table)
{
    options_man_begin(table);
    (void)fputs(".SH OPTIONS\n", stdout);
    options_man_options(table);
    if (table->after) {
        (void)fputs(".SH NOTES\n", stdout);
        options_man_text(table->after);
    }
    options_man_end();
}
