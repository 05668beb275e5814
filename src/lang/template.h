/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Argument templates of runtime.json. A template is one argument. {name} stands for a word or a
 * number, {{ and }} for braces. Numbers are limits and may carry left-to-right arithmetic with
 * constants: {memory_mb*3/4}. {args}, {compile_args} and {sources} stand for any number of
 * arguments and must be the whole template. Values are never split or joined, so a value cannot
 * become more than the one argument it is part of. */

#include "base/strv.h"
#include "lang/limits.h"

#include <stdbool.h>

struct template_vars {
    const char *home;       /* directory of the toolchain in the box */
    const char *entry;      /* name of the entry file */
    const char *entry_dir;  /* "." or "./dir" */
    const char *main_class; /* Java */
    const struct run_limits *limits;
    const struct strv *args;
    const struct strv *compile_args;
    const struct strv *sources; /* names of files */
};

/* NULL when the template is well formed, else a short reason. Lists are refused unless
 * list_allowed. */
const char *template_problem(const char *text, bool list_allowed);

/* Whether any of the templates contains {name}, with or without arithmetic. */
bool template_uses(const struct strv *templates, const char *name);

/* Expands a template that template_problem() accepted and adds the arguments to *ret. Returns
 * -ENOENT when a value is NULL; *ret_name then names it. */
int template_expand(const char *text, const struct template_vars *vars, struct strv *ret,
    const char **ret_name);

/* Copies the name of a file so that no program takes it for an option, a response file (@x) or
 * another special word. Puts "./" before names that do not begin with a letter, a digit, '_',
 * '.' or a character beyond ASCII. */
char *template_safe_name(const char *name);
