/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A problem as a folder (docs/judging.md): NAME.in with NAME.out or NAME.ans, perhaps
 * checker.EXT, interactor.EXT and headers for them, and problem.json with limits and the rest.
 */

#include "judge/decode.h"

struct problem {
    struct runtime_registry runtimes; /* the languages that are needed */
    struct json_judge judge;
};

/* Reads the folder and the solution. problem must be zeroed; it is given to problem_done() in
 * any case. `language` may be NULL: the file's name decides. */
int problem_load(struct problem *problem, const char *dir, const char *solution,
    const char *language, struct err *err);
void problem_done(struct problem *problem);
