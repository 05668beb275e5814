/* SPDX-License-Identifier: Apache-2.0 */

/* See options.h. Does not use argp: musl has none, and with musl `hermes` starts in a third of
 * the time. */

#include "cli/options.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "base/str.h"
#include "cli/cli.h"
#include "cli/output.h"

#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Columns of the --help text. */
enum { WIDTH = 79, TEXT_COLUMN = 29, KEY_HELP = 'h' };

static const struct option_row help_row = {"help", KEY_HELP, NULL, "print this text"};

static _Noreturn void point_to_help(const char *command)
{
    (void)fprintf(stderr, "Try `%s --help`.\n", command);
    exit(EXIT_USAGE);
}

void options_misuse(const char *command, const char *format, ...)
{
    va_list args;
    (void)fprintf(stderr, "%s: ", command);
    va_start(args, format);
    (void)vfprintf(stderr, format, args);
    va_end(args);
    (void)fputc('\n', stderr);
    point_to_help(command);
}

void options_wrong(const char *command, const char *option, const char *value, const char *why)
{
    struct err err = {0}; /* err_set() makes the value printable */
    (void)err_set(&err, ERR_INVALID, EINVAL, "--%s %s: %s", option, value, why);
    (void)fprintf(stderr, "%s: %s\n", command, err.message);
    exit(EXIT_USAGE);
}

uint32_t options_number(
    const char *command, const char *option, const char *value, uint32_t max)
{
    uint32_t number;
    char why[64];
    (void)snprintf(why, sizeof(why), "not a number from 1 to %u", max);
    if (str_parse_u32(value, &number) < 0 || number < 1 || number > max)
        options_wrong(command, option, value, why);
    return number;
}

/* Breaks lines between words; further lines begin at column `indent`. Newlines of the text
 * stay. */
static void print_wrapped(const char *text, int column, int indent)
{
    while (*text) {
        int word = (int)strcspn(text, " \n");
        column += printf("%.*s", word, text);
        text += word;
        if (*text == ' ' && column + 1 + (int)strcspn(text + 1, " \n") <= WIDTH)
            column += printf(" ");
        else if (*text)
            column = printf("\n%*s", indent, "") - 1;
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

static _Noreturn void print_help(const struct option_table *table)
{
    (void)printf("usage: %s [OPTION...]%s%s\n", table->command, table->operands ? " " : "",
        table->operands ? table->operands : "");
    print_wrapped(table->before, 0, 0);
    (void)putchar('\n');
    for (const struct option_row *row = table->rows; row->name; row++)
        print_row(row);
    print_row(&help_row);
    if (table->after) {
        (void)putchar('\n');
        print_wrapped(table->after, 0, 0);
    }
    exit(output_end(table->command, 0));
}

/* Converts one row for getopt_long(): returns its long form and appends its letter to *letters.
 */
static struct option add_row(const struct option_row *row, char **letters)
{
    if (row->key < 256) {
        *(*letters)++ = (char)row->key;
        if (row->value)
            *(*letters)++ = ':';
    }
    return (struct option){
        row->name, row->value ? required_argument : no_argument, NULL, row->key};
}

void options_parse(const struct option_table *table, int argc, char **argv,
    void (*take)(void *to, int key, char *value), void *to)
{
    size_t count = 0;
    while (table->rows[count].name)
        count++;
    cleanup_free struct option *longs = xcalloc(count + 2, sizeof(*longs));
    cleanup_free char *shorts = xcalloc(2 * count + 4, 1);
    char *letters = shorts;
    if (table->in_order)
        *letters++ = '+';
    for (size_t i = 0; i < count; i++)
        longs[i] = add_row(&table->rows[i], &letters);
    longs[count] = add_row(&help_row, &letters);
    argv[0] = (char *)table->command;
    int key;
    while ((key = getopt_long(argc, argv, shorts, longs, NULL)) != -1) {
        if (key == KEY_HELP)
            print_help(table);
        if (key == '?')
            point_to_help(table->command);
        take(to, key, optarg);
    }
    if (optind < argc && !table->operands)
        options_misuse(table->command, "too many arguments: `%s`", argv[optind]);
    while (optind < argc)
        take(to, OPTION_NONE, argv[optind++]);
}
