/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Judging: one solution, compiled once, against many tests. A test is a box of its own; so is
 * the checker that looks at its output, and the interactor that talks to it. What a test
 * expects never enters the solution's box. docs/judging.md has the rules. */

#include "judge/compare.h"
#include "run/engine.h"
#include "run/run.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum judge_verdict {
    JUDGE_ACCEPTED,
    JUDGE_WRONG_ANSWER,
    JUDGE_PRESENTATION_ERROR,
    JUDGE_TIME_LIMIT,
    JUDGE_MEMORY_LIMIT,
    JUDGE_OUTPUT_LIMIT,
    JUDGE_RUNTIME_ERROR,
    JUDGE_SIGNALED,
    JUDGE_COMPILE_ERROR,
    JUDGE_INTERNAL_ERROR, /* Hermes, a checker or an interactor failed: says nothing of the code
                           */
    JUDGE_SKIPPED,
    JUDGE_VERDICTS
};
const char *judge_verdict_name(enum judge_verdict verdict);

enum {
    JUDGE_MAX_TESTS = 4096,
    JUDGE_MAX_GROUPS = 256,
    JUDGE_MAX_PARALLEL = 64,
    JUDGE_KEPT_OUTPUT = 4096, /* bytes of a test's stdout and stderr in the answer */
    JUDGE_KEPT_TALK = 65536,  /* bytes of a transcript */
    JUDGE_NO_GROUP = -1,
};

/* Bytes in memory, or a file of the operator's. */
struct judge_text {
    char *data;
    size_t size;
    char *path; /* or NULL */
};

struct judge_test {
    char *name;
    struct judge_text input;
    struct judge_text expected;
    bool has_expected;
    struct strv args;
    bool has_args;
    double points;
    int group; /* set by judge_spec_settle() */
};

struct judge_group {
    char *name;
    struct strv tests;   /* globs of test names */
    struct strv depends; /* names of groups */
    bool has_points;     /* all or nothing; else its tests count one by one */
    double points;
    size_t depend_at[16]; /* set by judge_spec_settle() */
};

enum judge_stop { STOP_NEVER, STOP_AT_FIRST, STOP_IN_GROUP };

struct judge_spec {
    struct run_spec solution;
    bool has_checker, has_interactor;
    struct run_spec checker, interactor;
    struct compare_rule rule; /* without a checker */
    struct judge_test *tests;
    size_t test_count;
    struct judge_group *groups;
    size_t group_count;
    enum judge_stop stop;
    unsigned parallel; /* tests at one time */
    bool transcript;   /* keep what solution and interactor say to each other */
};

void judge_spec_init(struct judge_spec *spec);
void judge_spec_done(struct judge_spec *spec);
struct judge_test *judge_spec_add_test(struct judge_spec *spec);
struct judge_group *judge_spec_add_group(struct judge_spec *spec);

/* Names tests that have none by their number, finds the group of each, and checks what depends
 * on what; every refusal names the field. To be called once all is filled in. */
int judge_spec_settle(struct judge_spec *spec, struct err *err);

/* A piece of a transcript. */
struct judge_talk {
    bool from_solution;
    char *data;
    size_t len;
};

struct judge_test_result {
    enum judge_verdict verdict;
    double points;
    struct run_result run; /* of the solution; its stdout cut to JUDGE_KEPT_OUTPUT */
    bool ran;
    char message[512];
    unsigned attempts;
    double other_cpu_ms; /* of checker and interactor */
    struct judge_talk *talk;
    size_t talk_count;
    bool talk_truncated;
};

struct judge_group_result {
    enum judge_verdict verdict; /* of the first test that was not accepted */
    double points, max_points;
};

struct judge_result {
    char id[ID_MAX];
    enum judge_verdict verdict;
    bool cancelled;
    double points, max_points;
    char message[512];
    struct run_result compile;       /* of the solution; only its compile stage is filled in */
    struct judge_test_result *tests; /* as many as in the spec */
    size_t test_count;
    struct judge_group_result *groups;
    size_t failed_by_us; /* tests with internal_error */
    double cpu_ms;       /* of all boxes */
};
void judge_result_done(struct judge_result *result);

/* How the caller follows it and shares the machine; all but cancel_fd may be zero. */
struct judge_watch {
    void *context;
    void (*started)(void *context); /* once, when the first box may run */
    /* A test is decided. Called in the order of the tests, never twice at a time. */
    void (*tested)(void *context, size_t index, const struct judge_test_result *test);
    /* Whether one more test may run beside the others; whether it still may (asked between two
     * tests); it no longer does. Without these as many run as spec->parallel says. */
    bool (*more)(void *context);
    bool (*keep)(void *context);
    void (*less)(void *context);
    int cancel_fd;           /* -1 for none */
    struct buf_purse *purse; /* counts what is kept; outlives the result; or NULL */
};

/* Bytes that a judgement's own records take, beside what its programs write. */
size_t judge_records_size(const struct judge_spec *spec);

/* What one test may take at one time. Checks the programs as engine_weigh() does. */
int judge_weigh(
    struct engine *engine, struct judge_spec *spec, struct box_need *ret, struct err *err);

/* Judges. Returns 0 with the result, or negative errno with err when nothing could be told of
 * any test. result must be zeroed; it is given to judge_result_done() in any case. */
int judge_run(struct engine *engine, const struct judge_spec *spec,
    const struct judge_watch *watch, struct judge_result *result, struct err *err);
