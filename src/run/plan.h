/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What run/plan.c and the rules of lang/prepare.c share while a plan is made. */

#include "lang/runtime.h"

struct plan_draft {
    const struct runtime *rt;
    const struct run_spec *spec;
    struct run_plan *plan;
    char *entry;      /* name of the entry file, or NULL */
    char *entry_dir;  /* "." or "./dir" */
    char *main_class; /* Java, or NULL */
    struct strv sources;
    bool is_project; /* the file that selects project_argv is there */
};
