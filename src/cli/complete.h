/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Candidates for the word that a user types in a shell: one per line, with a tab and a short
 * description. No candidate means that the shell offers files. */

#include "cli/options.h"

/* Words of a command line after the command. */
struct complete {
    char **words;
    int count;                         /* the last word is the one to complete */
    const char *word;                  /* what candidates begin with */
    char *before;                      /* printed before each candidate: "--color=" or "" */
    const struct option_row *value_of; /* the option whose value is completed, or NULL */
    struct option_row *rows;
    size_t row_count;
};

/* Finds out what is completed, by the options of the command. The caller calls
 * complete_done(). */
void complete_begin(
    struct complete *c, const struct option_table *table, char **words, int count);
void complete_done(struct complete *c);

/* Prints the candidate if it begins with the word. */
void complete_offer(const struct complete *c, const char *candidate, const char *text);

/* Offers options after "-", and the values of options that have a fixed set. True when nothing
 * else can stand here. */
bool complete_options(const struct complete *c);
