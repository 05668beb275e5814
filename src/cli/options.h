/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The options of a command: one table for --help, for the man page, for the completions of
 * shells and for getopt_long(). Every command also has --color and --help. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The key of an operand. */
enum { OPTION_NONE = 0 };

struct option_row {
    const char *name;  /* NULL ends the table */
    int key;           /* a letter, which is also its short form, or a number above 255 */
    const char *value; /* name of its value in --help; NULL: it has none */
    const char *text;
};

struct option_table {
    const char *command;  /* "hermes run" */
    const char *operands; /* operands after the options; NULL: none */
    const char *summary;  /* one line for lists of commands and for the man page */
    const char *before;   /* text of --help above the options */
    const char *after;    /* text below them, or NULL */
    const struct option_row *rows;
    const struct option_row *(*more)(void); /* rows that are made at run time, or NULL */
    bool in_order;   /* everything after the first operand is an operand */
    bool is_foreign; /* another program reads the options: of the common ones it has --help only
                      */
};

/* All rows, those of --color and --help included. The caller frees the array. */
struct option_row *options_rows(const struct option_table *table, size_t *ret_count);

/* The row of a long option, without its dashes; NULL when the command has no such option. */
const struct option_row *options_find(
    const struct option_row *rows, size_t count, const char *name);

/* Calls take() for each option and then, with OPTION_NONE, for each operand. Ends the program
 * after --help and on errors. */
void options_parse(const struct option_table *table, int argc, char **argv,
    void (*take)(void *to, int key, char *value), void *to);

/* Options that only set a member of the struct that `to` of options_parse() points to. */
struct option_member {
    int key;
    enum { OPTION_FLAG, OPTION_TEXT, OPTION_TEXTS } kind; /* bool, const char *, struct strv */
    size_t offset;
};

/* Whether the table has the key; if so, sets its member. A text is borrowed. */
bool options_store(
    const struct option_member *members, size_t count, void *to, int key, const char *value);

/* Prints one line that an option's value is wrong, and ends the program. */
_Noreturn void options_wrong(
    const char *command, const char *option, const char *value, const char *why);

/* Prints any error of the command line, and ends the program. */
struct err;
_Noreturn void options_refuse(const char *command, const struct err *err);

/* Parses a number from 1 to max. Ends the program when it is invalid. */
uint32_t options_number(
    const char *command, const char *option, const char *value, uint32_t max);

/* Prints what is wrong with the command line, and ends the program. */
_Noreturn void options_misuse(const char *command, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The text of --help, and the man page in section 1 (options_print.c). */
void options_help(const struct option_table *table);
void options_man(const struct option_table *table);

/* The parts of a man page that is made from several tables. */
void options_man_begin(const struct option_table *table);
void options_man_options(const struct option_table *table);
void options_man_text(const char *text);
void options_man_end(void);
