/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Judging: one solution, compiled once, against many tests. Each test runs in a box of its own;
 * so do the checker that examines its output and the interactor that talks to it. The expected
 * output of a test never enters the solution's box. docs/judging.md has the rules. */

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
    JUDGE_INTERNAL_ERROR, /* Hermes, a checker or an interactor failed: not a verdict on the
                             code */
    JUDGE_SKIPPED,
    JUDGE_VERDICTS
};
const char *judge_verdict_name(enum judge_verdict verdict);

enum {
    JUDGE_MAX_TESTS = 4096,
    JUDGE_MAX_GROUPS = 256,
    JUDGE_MAX_PARALLEL = 64,
    JUDGE_KEPT_OUTPUT = 4096, /* bytes of a test's stdout and stderr in the answer */
    JUDGE_KEPT_TALK = 65536,  /* bytes of a transcript in the answer */
    JUDGE_NO_GROUP = -1,
};

/* Bytes in memory, or a file of the operator. */
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
    bool has_points;     /* points for the whole group; otherwise its tests count one by one */
    double points;
    size_t depend_at[16]; /* indices of `depends`; set by judge_spec_settle() */
};

enum judge_stop { STOP_NEVER, STOP_AT_FIRST, STOP_IN_GROUP };

struct judge_spec {
    struct run_spec solution;
    bool has_checker, has_interactor;
    struct run_spec checker, interactor;
    struct compare_rule rule; /* used when there is no checker */
    struct judge_test *tests;
    size_t test_count;
    struct judge_group *groups;
    size_t group_count;
    enum judge_stop stop;
    unsigned parallel; /* tests at one time */
    bool transcript;   /* keep the messages between solution and interactor */
};

void judge_spec_init(struct judge_spec *spec);
void judge_spec_done(struct judge_spec *spec);
struct judge_test *judge_spec_add_test(struct judge_spec *spec);
struct judge_group *judge_spec_add_group(struct judge_spec *spec);

/* Call when everything is filled in. Names unnamed tests by their number, finds the group of
 * each test and checks the dependencies between groups. Every refusal names the field. */
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
    struct run_result run; /* the solution; its stdout is cut to JUDGE_KEPT_OUTPUT */
    bool ran;
    char message[512];
    unsigned attempts;
    double other_cpu_ms; /* CPU time of checker and interactor */
    struct judge_talk *talk;
    size_t talk_count;
    bool talk_truncated;
    struct network_report *checker_network; /* NULL: it asked for no network */
    struct network_report *interactor_network;
};

struct judge_group_result {
    enum judge_verdict verdict; /* of the first test that was not accepted, or internal_error */
    double points, max_points;
};

struct judge_result {
    char id[ID_MAX];
    enum judge_verdict verdict;
    bool cancelled;
    double points, max_points;
    char message[512];
    struct run_result compile;       /* the solution; only its compile stage is filled in */
    struct judge_test_result *tests; /* as many as in the spec */
    size_t test_count;
    struct judge_group_result *groups;
    size_t failed_by_us; /* number of tests with internal_error */
    double cpu_ms;       /* of all boxes */
};
void judge_result_done(struct judge_result *result);

/* Callbacks for following a judgement and for sharing the machine; all but cancel_fd may be
 * zero. */
struct judge_watch {
    void *context;
    void (*started)(void *context); /* called once, before the programs are compiled */
    /* A test is decided. Called in the order of the tests, never by two threads at once. */
    void (*tested)(void *context, size_t index, const struct judge_test_result *test);
    /* `more` asks whether one more test may run beside the others; `keep` asks, between two
     * tests, whether it still may; `less` reports that it has stopped. Without these callbacks
     * spec->parallel tests run. */
    bool (*more)(void *context);
    bool (*keep)(void *context);
    void (*less)(void *context);
    int cancel_fd;           /* -1 for none */
    struct buf_purse *purse; /* counts the memory kept; outlives the result; or NULL */
};

/* Bytes of a judgement's own records, without the output of its programs. */
size_t judge_records_size(const struct judge_spec *spec);

/* The plans of a judgement's programs. Those of a checker or an interactor that the request
 * does not have are zeroed. */
struct judge_plan {
    const struct judge_spec *spec; /* borrowed */
    struct run_plan solution, checker, interactor;
};
void judge_plan_done(struct judge_plan *plan);

/* Fits the limits that the request left open to the tests, then plans each program as
 * run_plan_make() does. */
int judge_plan_make(struct judge_spec *spec, const struct run_limits *maxima,
    struct judge_plan *ret, struct err *err);

/* The most that one test needs at one time. */
struct box_need judge_plan_need(const struct judge_plan *plan);

/* Judges. Returns 0 with the result, or negative errno with err when no test could be judged.
 * result must be zeroed. The caller must call judge_result_done(), also after an error. */
int judge_run(struct engine *engine, const struct judge_plan *plan,
    const struct judge_watch *watch, struct judge_result *result, struct err *err);
