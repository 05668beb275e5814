/* SPDX-License-Identifier: Apache-2.0 */

/* See options.h. Does not use argp: musl has none, and with musl `hermes` starts in a third of
 * the time. */

#include "cli/options.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "base/nearest.h"
#include "base/str.h"
#include "base/strv.h"
#include "cli/cli.h"
#include "cli/color.h"
#include "cli/output.h"

#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEY_HELP = 'h', KEY_COLOR = 4096 };

static const struct option_row common_rows[] = {
    {"color", KEY_COLOR, "WHEN",
        "colours: auto (default: on a terminal, unless NO_COLOR is set), always, never"},
    {"help", KEY_HELP, NULL, "print this text"},
};
enum { COMMON_COUNT = sizeof(common_rows) / sizeof(common_rows[0]) };

void options_misuse(const char *command, const char *format, ...)
{
    struct err err = {.code = ERR_INVALID};
    char text[sizeof(err.message)];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    (void)err_set(&err, ERR_INVALID, EINVAL, "%s", text); /* makes it printable */
    int status = output_error(command, &err);
    (void)fprintf(stderr, "Try `%s --help`.\n", command);
    exit(status);
}

void options_wrong(const char *command, const char *option, const char *value, const char *why)
{
    struct err err = {0};
    char field[sizeof(err.field)];
    (void)snprintf(field, sizeof(field), "--%s", option);
    (void)err_field(&err, field, "--%s %s: %s", option, value, why);
    options_refuse(command, &err);
}

void options_refuse(const char *command, const struct err *err)
{
    exit(output_error(command, err));
}

bool options_store(
    const struct option_member *members, size_t count, void *to, int key, const char *value)
{
    size_t i = 0;
    while (i < count && members[i].key != key)
        i++;
    if (i == count)
        return false;
    void *member = (char *)to + members[i].offset;
    switch (members[i].kind) {
    case OPTION_FLAG:
        *(bool *)member = true;
        break;
    case OPTION_TEXT:
        *(const char **)member = value;
        break;
    case OPTION_TEXTS:
        strv_add(member, value);
        break;
    }
    return true;
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

static size_t count_rows(const struct option_row *rows)
{
    size_t count = 0;
    while (rows[count].name)
        count++;
    return count;
}

struct option_row *options_rows(const struct option_table *table, size_t *ret_count)
{
    const struct option_row *more = table->more ? table->more() : NULL;
    size_t own = table->rows ? count_rows(table->rows) : 0;
    size_t made = more ? count_rows(more) : 0;
    struct option_row *rows = xcalloc(own + made + COMMON_COUNT, sizeof(*rows));
    if (own > 0)
        memcpy(rows, table->rows, own * sizeof(*rows));
    if (made > 0)
        memcpy(rows + own, more, made * sizeof(*rows));
    size_t skipped = table->is_foreign ? COMMON_COUNT - 1 : 0; /* --help is the last one */
    memcpy(rows + own + made, common_rows + skipped, sizeof(*rows) * (COMMON_COUNT - skipped));
    *ret_count = own + made + COMMON_COUNT - skipped;
    return rows;
}

const struct option_row *options_find(
    const struct option_row *rows, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++) {
        if (str_eq(rows[i].name, name))
            return &rows[i];
    }
    return NULL;
}

/* What getopt_long() reads, made from the rows. */
struct parser {
    const struct option_table *table;
    struct option_row *rows;
    size_t count;
    struct option *longs;
    char *shorts;
};

static void parser_init(struct parser *p, const struct option_table *table)
{
    p->table = table;
    p->rows = options_rows(table, &p->count);
    p->longs = xcalloc(p->count + 1, sizeof(*p->longs));
    p->shorts = xcalloc(2 * p->count + 3, 1);
    char *letters = p->shorts;
    if (table->in_order)
        *letters++ = '+';
    *letters++ = ':'; /* tells a missing value from an unknown option */
    for (size_t i = 0; i < p->count; i++) {
        const struct option_row *row = &p->rows[i];
        p->longs[i] = (struct option){
            row->name, row->value ? required_argument : no_argument, NULL, row->key};
        if (row->key < 256)
            *letters++ = (char)row->key;
        if (row->key < 256 && row->value)
            *letters++ = ':';
    }
}

static void parser_done(struct parser *p)
{
    free(p->rows);
    free(p->longs);
    free(p->shorts);
}

static int next_option(const struct parser *p, int argc, char **argv)
{
    return getopt_long(argc, argv, p->shorts, p->longs, NULL);
}

/* Starts from the first argument. Both glibc and musl take 0 as "from the beginning". */
static void rewind_options(void)
{
    optind = 0;
    opterr = 0;
}

/* Errors are printed as JSON too if --json stands anywhere among the options, also behind the
 * mistake. */
static void look_for_json(const struct parser *p, int argc, char **argv)
{
    const struct option_row *json = options_find(p->rows, p->count, "json");
    int key;
    rewind_options();
    while (json && (key = next_option(p, argc, argv)) != -1) {
        if (key == json->key)
            output_errors_as_json();
    }
}

/* Explains why getopt_long() refused argv[optind - 1]. */
static _Noreturn void refuse(const struct parser *p, int key, char **argv)
{
    const char *command = p->table->command;
    const char *word = argv[optind - 1];
    if (!str_has_prefix(word, "--") || word[2] == '\0') {
        if (key == ':')
            options_misuse(command, "-%c needs a value", optopt);
        options_misuse(command, "unknown option -%c", optopt);
    }
    cleanup_free char *name = xstrndup(word + 2, strcspn(word + 2, "="));
    const struct option_row *row = options_find(p->rows, p->count, name);
    if (key == ':')
        options_misuse(command, "--%s needs a value", name);
    if (row)
        options_misuse(command, "--%s takes no value", name);
    struct nearest near = {.word = name};
    for (size_t i = 0; i < p->count; i++)
        nearest_try(&near, p->rows[i].name);
    if (near.name)
        options_misuse(command, "unknown option --%s; did you mean --%s?", name, near.name);
    options_misuse(command, "unknown option --%s", name);
}

void options_parse(const struct option_table *table, int argc, char **argv,
    void (*take)(void *to, int key, char *value), void *to)
{
    CLEANUP(parser_done) struct parser p;
    parser_init(&p, table);
    argv[0] = (char *)table->command;
    look_for_json(&p, argc, argv);
    rewind_options();
    int key;
    while ((key = next_option(&p, argc, argv)) != -1) {
        if (key == KEY_HELP) {
            options_help(table);
            exit(output_end(table->command, 0));
        }
        if (key == '?' || key == ':')
            refuse(&p, key, argv);
        if (key != KEY_COLOR)
            take(to, key, optarg);
        else if (!color_choose(optarg))
            options_wrong(table->command, "color", optarg, "one of auto, always, never");
    }
    if (optind < argc && !table->operands)
        options_misuse(table->command, "too many arguments: `%s`", argv[optind]);
    while (optind < argc)
        take(to, OPTION_NONE, argv[optind++]);
}
