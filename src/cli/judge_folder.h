/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A problem as a folder (docs/judging.md): NAME.in with NAME.out or NAME.ans, optionally
 * checker.EXT, interactor.EXT and headers for them, and problem.json with limits and other
 * settings. */

#include "judge/decode.h"

struct problem {
    const struct lang_dirs *dirs;     /* borrowed; the caller sets it */
    struct runtime_registry runtimes; /* the languages that the problem needs */
    struct json_judge judge;
};

/* Reads the folder and the solution. All of `problem` but `dirs` must be zeroed. The caller
 * calls problem_done() in any case. When `language` is NULL the file's name decides. */
int problem_load(struct problem *problem, const char *dir, const char *solution,
    const char *language, struct err *err);
void problem_done(struct problem *problem);
