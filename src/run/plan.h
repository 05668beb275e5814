/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The plan of a run, made once from runtime.json and the request: argument lists, environment
 * and limits of each stage. Admission reads its limits, then the engine runs it. */

#include "lang/environment.h"
#include "lang/runtime.h"
#include "run/run.h"

/* One stage, ready for a box: a program of the stage's root and its arguments, environment and
 * files. */
struct run_stage {
    size_t exec;       /* index into the root's programs */
    bool in_toolchain; /* run stage: use the root of the compile stage */
    struct strv argv;
    struct strv env;
    struct strv artefacts; /* compile: globs of the files that move to the run box */
    char *program; /* file that becomes the executable "main" of the run box, or NULL: an
                      artefact for compile, one of the user's files for run */
    struct run_files files; /* made by Hermes; replace the user's files of the same name */
    struct run_limits limits;
};

/* The compile box gets the user's files and compile.files. The run box gets the user's files,
 * the artefacts and run.files; later files replace earlier ones of the same name. */
struct run_plan {
    const struct run_spec *spec; /* borrowed */
    bool has_compile;
    struct run_stage compile;
    struct run_stage run;
};
void run_plan_done(struct run_plan *plan);

/* Checks the spec and makes its plan. Every front door calls this once for each run.
 * ERR_INVALID with the field when the request is wrong (file names, entry, compile_args, limits
 * above the maxima, ...); ERR_UNAVAILABLE when the toolchain is not installed. The plan borrows
 * the spec. The caller calls run_plan_done(), which also accepts a zeroed plan. */
int run_plan_make(const struct run_spec *spec, const struct run_limits *maxima,
    struct run_plan *ret, struct err *err);

/* Changes the words of a program for a box with an image: the interpreter is called by the
 * image's name for it, and the variables of language and image are set. argv may be NULL.
 * Returns the number of the program to execute instead of `exec`; 0 is the interpreter. */
size_t plan_image(const struct stage_def *def, const struct run_image *image, size_t exec,
    struct strv *argv, struct strv *env);

/* Memory and processes of the larger stage: the stages run one after the other. */
struct box_need run_plan_need(const struct run_plan *plan);

/* The state that plan.c and the rules of prepare.c share while a plan is made. */
struct plan_draft {
    const struct runtime *rt;
    const struct run_spec *spec;
    struct run_plan *plan;
    char *entry;      /* name of the entry file, or NULL */
    char *entry_dir;  /* "." or "./dir" */
    char *main_class; /* Java, or NULL */
    struct strv sources;
    bool is_project; /* project_file is among the files, so project_argv is used */
};
