/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The options of a command: a table that --help is printed from and getopt_long() reads by. */

#include <stdbool.h>
#include <stdint.h>

/* The key of what is no option. */
enum { OPTION_NONE = 0 };

struct option_row {
    const char *name;  /* NULL ends the table */
    int key;           /* a letter, which is its short form too, or a number above 255 */
    const char *value; /* what --help calls its value; NULL: takes none */
    const char *text;
};

struct option_table {
    const char *command;  /* "hermes run" */
    const char *operands; /* what may follow the options; NULL: nothing */
    const char *before;   /* --help above and below the options; `after` may be NULL */
    const char *after;
    const struct option_row *rows;
    bool in_order; /* what follows the first operand is none of our options */
};

/* Calls take() for each option and then, with OPTION_NONE, for each operand. Ends the program
 * after --help and when something is wrong. */
void options_parse(const struct option_table *table, int argc, char **argv,
    void (*take)(void *to, int key, char *value), void *to);

/* The value of an option is wrong: says so in one line and ends the program. */
_Noreturn void options_wrong(
    const char *command, const char *option, const char *value, const char *why);

/* A number from 1 to max; ends the program when it is none. */
uint32_t options_number(
    const char *command, const char *option, const char *value, uint32_t max);

/* Says what is wrong with the command line and ends the program. */
_Noreturn void options_misuse(const char *command, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
