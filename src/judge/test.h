/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* One test of a judgement, for judge/judge.c. */

#include "judge/judge.h"

struct judge_programs {
    struct engine_program *solution;
    struct engine_program *checker;    /* or NULL */
    struct engine_program *interactor; /* or NULL */
};

/* The data that all tests share; used by all threads. */
struct judge_bench {
    const struct judge_spec *spec;
    struct judge_programs programs;
    int cancel_fd;
    struct buf_purse *purse; /* counts the memory kept, or NULL */
};

/* Runs one test once. Returns 0 with the verdict in *result, or negative errno with err when
 * Hermes failed; the caller may then try again. */
int judge_test_run(const struct judge_bench *bench, const struct judge_test *test,
    struct judge_test_result *result, struct err *err);

/* The same with an interactor (judge/talk.c), without the checker. */
struct judge_files {
    struct judge_text input, answer; /* in memory */
};
int judge_talk_run(const struct judge_bench *bench, const struct judge_test *test,
    const struct judge_files *files, struct judge_test_result *result,
    struct run_result *interactor, struct err *err);

/* Sets verdict and message from the solution's own end. */
void judge_note_run(struct judge_test_result *result);

/* The verdict of a checker or interactor by its exit status; JUDGE_INTERNAL_ERROR when it
 * failed. */
enum judge_verdict judge_opinion(const struct stage_result *stage);

/* The same with points and message; `who` is "checker" or "interactor". */
void judge_note_opinion(const char *who, const struct stage_result *stage, double max_points,
    struct judge_test_result *result);

/* Arguments (of every test) and files of a checker or interactor. */
const struct strv *judge_file_args(void);
void judge_fill_file(struct run_file *file, const char *name, const char *data, size_t size);
