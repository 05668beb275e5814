/* SPDX-License-Identifier: Apache-2.0 */

/* See complete.h. */

#include "cli/complete.h"

#include "base/alloc.h"
#include "base/str.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Values of options that have a fixed set, by the name of the value in --help. */
static const struct {
    const char *value;
    const char *words[8];
} fixed[] = {
    {"WHEN", {"auto", "always", "never"}},
    {"LEVEL", {"full", "strong", "process"}},
    {"MODE", {"strict", "best_effort"}},
};

/* The option that takes a value from the next word: "--url" or "-l". */
static const struct option_row *waits_for_value(
    const struct option_row *rows, size_t count, const char *word)
{
    for (size_t i = 0; i < count; i++) {
        bool is_long = str_has_prefix(word, "--") && str_eq(word + 2, rows[i].name);
        bool is_short =
            word[0] == '-' && rows[i].key < 256 && word[1] == rows[i].key && !word[2];
        if (rows[i].value && (is_long || is_short))
            return &rows[i];
    }
    return NULL;
}

void complete_begin(
    struct complete *c, const struct option_table *table, char **words, int count)
{
    *c = (struct complete){.words = words, .count = count};
    c->rows = options_rows(table, &c->row_count);
    c->word = count ? words[count - 1] : "";
    const char *equals = strchr(c->word, '=');
    int last = count - 2; /* bash makes three words of "--color=al" */
    if (last > 0 && str_eq(words[last], "="))
        last--;
    if (str_has_prefix(c->word, "--") && equals) {
        c->before = xstrndup(c->word, (size_t)(equals - c->word) + 1);
        char *name = xstrndup(c->word + 2, (size_t)(equals - c->word) - 2);
        c->value_of = options_find(c->rows, c->row_count, name);
        c->word = equals + 1;
        free(name);
    } else if (last >= 0) {
        c->value_of = waits_for_value(c->rows, c->row_count, words[last]);
    }
    if (!c->before)
        c->before = xstrdup("");
}

void complete_done(struct complete *c)
{
    free(c->before);
    free(c->rows);
}

void complete_offer(const struct complete *c, const char *candidate, const char *text)
{
    if (str_has_prefix(candidate, c->word))
        (void)printf("%s%s\t%s\n", c->before, candidate, text);
}

bool complete_options(const struct complete *c)
{
    for (size_t i = 0; c->value_of && i < sizeof(fixed) / sizeof(fixed[0]); i++) {
        for (size_t k = 0; str_eq(fixed[i].value, c->value_of->value) && fixed[i].words[k]; k++)
            complete_offer(c, fixed[i].words[k], "");
    }
    if (c->value_of || c->word[0] != '-')
        return c->value_of != NULL;
    for (size_t i = 0; i < c->row_count; i++) {
        char name[64];
        (void)snprintf(name, sizeof(name), "--%s", c->rows[i].name);
        complete_offer(c, name, c->rows[i].text);
    }
    return true;
}
