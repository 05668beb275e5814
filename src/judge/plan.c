/* SPDX-License-Identifier: Apache-2.0 */

/* See judge.h. The plans of a judgement's programs, and the limits that depend on its tests. */

#include "base/cleanup.h"
#include "judge/judge.h"
#include "judge/test.h"

#include <stdio.h>

enum {
    WALL_PER_CPU = 3,           /* wall time for each unit of a named CPU time */
    INTERACTOR_EXTRA_MS = 5000, /* wall time of an interactor beyond the solution's */
};

/* Tests run in parallel. A request that names only a limit of CPU time should not fail by the
 * wall clock of a busy machine. */
static void fit_wall(struct run_spec *spec, const struct run_limits *maxima)
{
    struct run_limits *limits = &spec->limits;
    struct run_limits usual = {0};
    if (!limits->cpu_ms || limits->wall_ms || limits->cpu_ms > maxima->wall_ms)
        return;
    limits_fill(&usual, &spec->runtime->limits);
    uint64_t wall_ms = WALL_PER_CPU * limits->cpu_ms;
    wall_ms = wall_ms > usual.wall_ms ? wall_ms : usual.wall_ms;
    limits->wall_ms = wall_ms < maxima->wall_ms ? wall_ms : maxima->wall_ms;
}

/* The files of a test live in the memory of the checker and the interactor. Limits that the
 * request does not name leave room for the largest test. The interactor gets more wall time
 * than the solution, so that a solution that waits is stopped first. */
static void fit_limits(struct judge_spec *spec, const struct run_limits *maxima)
{
    uint64_t most = 0;
    for (size_t i = 0; i < spec->test_count; i++) {
        const struct judge_test *test = &spec->tests[i];
        uint64_t size = test->input.size + 3 * (uint64_t)test->expected.size;
        most = size > most ? size : most;
    }
    fit_wall(&spec->solution, maxima);
    uint64_t named = spec->solution.limits.output_kb >> 10;
    uint64_t disk_mb = (most >> 20) + named + 8;
    struct run_spec *others[] = {&spec->checker, &spec->interactor};
    for (size_t i = 0; i < 2; i++) {
        if (!others[i]->runtime || disk_mb <= 32)
            continue;
        struct run_limits *limits = &others[i]->limits;
        uint64_t memory_mb = others[i]->runtime->limits.memory_mb;
        if (!limits->memory_mb)
            limits->memory_mb = (memory_mb ? memory_mb : 256) + 3 * disk_mb;
        if (!limits->disk_mb && disk_mb < limits->memory_mb)
            limits->disk_mb = disk_mb;
    }
    if (spec->has_interactor && !spec->interactor.limits.wall_ms) {
        struct run_limits solution = spec->solution.limits;
        limits_fill(&solution, &spec->solution.runtime->limits);
        uint64_t wall_ms = solution.wall_ms + INTERACTOR_EXTRA_MS;
        spec->interactor.limits.wall_ms = wall_ms < maxima->wall_ms ? wall_ms : maxima->wall_ms;
    }
}

/* Plans one program. `field` is its place in the request, "" for the solution. */
static int plan_program(const struct run_spec *spec, const struct run_limits *maxima,
    const char *field, struct run_plan *ret, struct err *err)
{
    int r = run_plan_make(spec, maxima, ret, err);
    if (r == 0 || !field[0])
        return r;
    char whole[sizeof(err->field)];
    (void)snprintf(whole, sizeof(whole), "%s.%.80s", field, err->field);
    if (err->field[0])
        (void)snprintf(err->field, sizeof(err->field), "%s", whole);
    return err_wrap(err, r, "%s", field);
}

void judge_plan_done(struct judge_plan *plan)
{
    run_plan_done(&plan->solution);
    run_plan_done(&plan->checker);
    run_plan_done(&plan->interactor);
}

int judge_plan_make(struct judge_spec *spec, const struct run_limits *maxima,
    struct judge_plan *ret, struct err *err)
{
    CLEANUP(judge_plan_done) struct judge_plan plan = {.spec = spec};
    fit_limits(spec, maxima);
    strv_done(&spec->checker.args);
    strv_done(&spec->interactor.args);
    strv_add_all(&spec->checker.args, judge_file_args());
    strv_add_all(&spec->interactor.args, judge_file_args());
    int r = plan_program(&spec->solution, maxima, "", &plan.solution, err);
    if (r == 0 && spec->has_checker)
        r = plan_program(&spec->checker, maxima, "compare.checker", &plan.checker, err);
    if (r == 0 && spec->has_interactor)
        r = plan_program(&spec->interactor, maxima, "interactor", &plan.interactor, err);
    if (r < 0)
        return r;
    *ret = take_struct(plan);
    return 0;
}

struct box_need judge_plan_need(const struct judge_plan *plan)
{
    struct box_need solution = run_plan_need(&plan->solution);
    struct box_need checker = run_plan_need(&plan->checker);
    struct box_need interactor = run_plan_need(&plan->interactor);
    return box_need_larger(box_need_sum(solution, interactor), checker);
}
