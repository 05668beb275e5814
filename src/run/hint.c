/* SPDX-License-Identifier: Apache-2.0 */

/* See hint.h. */

#include "run/hint.h"

#include "base/str.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* How far from the end of stderr the line may be. */
enum { LOOK = 1024, NAME_MAX_LEN = 64 };

/* The names by which programs import what images/data/requirements.in lists. */
static const char *const modules[] = {"PIL", "bs4", "dateutil", "joblib", "lxml", "matplotlib",
    "networkx", "numpy", "openpyxl", "pandas", "pylab", "requests", "scipy", "seaborn",
    "sklearn", "statsmodels", "sympy", "tabulate", "xlsxwriter", "yaml"};

static bool has_module(const char *name)
{
    bool found = false;
    for (size_t i = 0; i < sizeof(modules) / sizeof(modules[0]); i++)
        found = found || str_eq(name, modules[i]);
    return found;
}

void hint_missing_module(const char *text, size_t len, char *message, size_t size)
{
    static const char words[] = "No module named '";
    const size_t words_len = sizeof(words) - 1;
    char name[NAME_MAX_LEN + 1];
    size_t least = len > LOOK ? len - LOOK : 0;
    size_t at = len >= words_len ? len - words_len + 1 : 0;
    while (at > least && memcmp(text + at - 1, words, words_len) != 0)
        at--;
    if (at <= least)
        return;
    const char *from = text + at - 1 + words_len;
    size_t rest = len - (at - 1 + words_len);
    size_t used = 0;
    while (used < rest && used < NAME_MAX_LEN && from[used] != '\'')
        used++;
    memcpy(name, from, used);
    name[used] = '\0';
    if (used < rest && from[used] == '\'' && has_module(name))
        (void)snprintf(message, size,
            "the image `data` has %s: name it in `image`. If it is not there, the operator "
            "gets it with `hermes image build --operator data`",
            name);
}
