/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The options of a command: one table for --help and for getopt_long(). */

#include <stdbool.h>
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
    const char *before;   /* text of --help above and below the options; `after` may be NULL */
    const char *after;
    const struct option_row *rows;
    bool in_order; /* everything after the first operand is an operand */
};

/* Calls take() for each option and then, with OPTION_NONE, for each operand. Ends the program
 * after --help and on errors. */
void options_parse(const struct option_table *table, int argc, char **argv,
    void (*take)(void *to, int key, char *value), void *to);

/* Prints one line that an option's value is wrong, and ends the program. */
_Noreturn void options_wrong(
    const char *command, const char *option, const char *value, const char *why);

/* Parses a number from 1 to max. Ends the program when it is invalid. */
uint32_t options_number(
    const char *command, const char *option, const char *value, uint32_t max);

/* Prints what is wrong with the command line, and ends the program. */
_Noreturn void options_misuse(const char *command, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
