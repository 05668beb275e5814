/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Argument templates of runtime.json. A template is one argument; {name} stands for a word or a
 * number, {{ and }} for braces. Numbers are limits and may carry left-to-right arithmetic with
 * constants: {memory_mb*3/4}. {args}, {compile_args} and {sources} stand for any number of
 * arguments and must be the whole template. Nothing is ever split or joined, so no value can
 * become more than the argument it was put into. */

#include "base/strv.h"
#include "lang/limits.h"

#include <stdbool.h>

struct template_vars {
    const char *home;       /* where the box sees the toolchain */
    const char *entry;      /* name of the entry file */
    const char *entry_dir;  /* "." or "./dir" */
    const char *main_class; /* Java */
    const struct run_limits *limits;
    const struct strv *args;
    const struct strv *compile_args;
    const struct strv *sources; /* names of files */
};

/* NULL when the template is well formed, else a short reason. Lists are refused unless allowed.
 */
const char *template_problem(const char *text, bool list_allowed);

/* Whether {name} (with or without arithmetic) occurs in any of the templates. */
bool template_uses(const struct strv *templates, const char *name);

/* Expands one template of `template_problem() == NULL` and adds the arguments to *ret. Returns
 * -ENOENT when a value it needs is NULL; *ret_name then names it. */
int template_expand(const char *text, const struct template_vars *vars, struct strv *ret,
    const char **ret_name);

/* A copy of a file's name that no program takes for an option, a response file (@x) or another
 * special word: "./" goes before names that begin with something else than a letter, a digit,
 * '_' or '.'. */
char *template_safe_name(const char *name);
