/* SPDX-License-Identifier: Apache-2.0 */

/* The texts that are made from an option table: --help and the man page. */

#include "cli/options.h"

#include "base/cleanup.h"
#include "cli/color.h"
#include "version.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* Columns of the --help text. */
enum { WIDTH = 79, TEXT_COLUMN = 29 };

/* The date of the last change to the form of the man pages. A date of the build would make
 * builds differ. */
#define MAN_DATE "2026-11-16"

/* Where a line continues: a row of a list ("  word  text") below its text, others at `indent`.
 */
static int hang_of(const char *line, int indent)
{
    int len = (int)strcspn(line, "\n");
    int at = (int)strspn(line, " ");
    if (at == 0)
        return indent;
    while (at + 1 < len && !(line[at] == ' ' && line[at + 1] == ' '))
        at++;
    at += (int)strspn(line + at, " ");
    return at < len ? at : indent;
}

/* Breaks lines between words. Newlines of the text stay. */
static void print_wrapped(const char *text, int column, int indent)
{
    int hang = hang_of(text, indent);
    while (*text) {
        int word = (int)strcspn(text, " \n");
        column += printf("%.*s", word, text);
        text += word;
        if (*text == ' ' && column + 1 + (int)strcspn(text + 1, " \n") <= WIDTH)
            column += printf(" ");
        else if (*text) {
            bool is_end = *text == '\n';
            hang = is_end ? hang_of(text + 1, indent) : hang;
            bool is_empty = is_end && (text[1] == '\n' || !text[1]);
            column = printf("\n%*s", is_empty ? 0 : is_end ? indent : hang, "") - 1;
        }
        text += *text != '\0';
    }
    (void)putchar('\n');
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
    (void)printf("%susage:%s %s [OPTION...]%s%s\n\n", color_on(stdout, COLOR_STRONG),
        color_off(stdout), table->command, *operands ? " " : "", operands);
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
