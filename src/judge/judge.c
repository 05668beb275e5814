/* SPDX-License-Identifier: Apache-2.0 */

/* See judge.h. The programs are prepared once; then threads take the tests in their order. A
 * test is decided when it and all tests before it are done, so the skipped tests do not depend
 * on which thread was faster. Failures of Hermes are retried and then reported as
 * internal_error; they are not verdicts on the solution. */

#include "judge/judge.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/os/thread.h"
#include "judge/test.h"
#include "network/report.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    ATTEMPTS = 3,
    SPAWNER_WAIT_MS = 5000, /* a spawner that died is replaced sooner */
    PAUSE_MS = 20,
};

const char *judge_verdict_name(enum judge_verdict verdict)
{
    static const char *const names[JUDGE_VERDICTS] = {
        [JUDGE_ACCEPTED] = "accepted",
        [JUDGE_WRONG_ANSWER] = "wrong_answer",
        [JUDGE_PRESENTATION_ERROR] = "presentation_error",
        [JUDGE_TIME_LIMIT] = "time_limit",
        [JUDGE_MEMORY_LIMIT] = "memory_limit",
        [JUDGE_OUTPUT_LIMIT] = "output_limit",
        [JUDGE_RUNTIME_ERROR] = "runtime_error",
        [JUDGE_SIGNALED] = "signaled",
        [JUDGE_COMPILE_ERROR] = "compile_error",
        [JUDGE_INTERNAL_ERROR] = "internal_error",
        [JUDGE_SKIPPED] = "skipped",
    };
    return names[verdict];
}

static void test_result_clear(struct judge_test_result *test)
{
    run_result_done(&test->run);
    for (size_t i = 0; i < test->talk_count; i++)
        free(test->talk[i].data);
    free(test->talk);
    network_report_free(test->checker_network);
    network_report_free(test->interactor_network);
    *test = (struct judge_test_result){.verdict = JUDGE_SKIPPED};
    run_result_init(&test->run, JUDGE_KEPT_OUTPUT);
}

size_t judge_records_size(const struct judge_spec *spec)
{
    return spec->test_count * (sizeof(struct judge_test_result) + sizeof(struct judge_test)) +
           spec->group_count * sizeof(struct judge_group_result);
}

void judge_result_done(struct judge_result *result)
{
    for (size_t i = 0; i < result->test_count; i++) {
        test_result_clear(&result->tests[i]);
        run_result_done(&result->tests[i].run);
    }
    free(result->tests);
    free(result->groups);
    run_result_done(&result->compile);
    *result = (struct judge_result){0};
}

enum state { OPEN, RUNNING, DONE, TOLD };

/* The progress of a group. */
struct progress {
    size_t open;      /* tests that are not decided */
    bool rejected;    /* a decided test was not accepted */
    size_t failed_at; /* first test that failed, or SIZE_MAX */
};

struct judging {
    struct engine *engine;
    const struct judge_watch *watch;
    struct judge_result *result;
    struct judge_bench bench;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    enum state *states;
    struct progress *groups;
    size_t told;      /* all tests before this one are decided */
    size_t failed_at; /* first test that failed, or SIZE_MAX */
    unsigned running;
    unsigned workers; /* threads besides the first */
    pthread_t threads[JUDGE_MAX_PARALLEL];
    unsigned thread_count;
};

static bool is_cancelled(const struct judging *j, int wait_ms)
{
    struct pollfd fd = {.fd = j->watch->cancel_fd, .events = POLLIN};
    return poll(&fd, 1, wait_ms) > 0;
}

static bool is_failure(enum judge_verdict verdict)
{
    return verdict != JUDGE_ACCEPTED && verdict != JUDGE_SKIPPED &&
           verdict != JUDGE_INTERNAL_ERROR;
}

/* Whether the failure is temporary, so that another attempt can help. */
static bool is_passing(const struct err *err)
{
    return err->code == ERR_INTERNAL || err->code == ERR_UNAVAILABLE ||
           err->code == ERR_NO_SPACE;
}

/* Waits for the next spawner when the old one died. False when another attempt is useless. */
static bool may_retry(const struct judging *j, const struct err *err, unsigned attempt)
{
    if (!is_passing(err) || attempt >= ATTEMPTS)
        return false;
    if (is_cancelled(j, PAUSE_MS))
        return false;
    for (int waited = 0; !engine_is_alive(j->engine); waited += PAUSE_MS) {
        if (waited > SPAWNER_WAIT_MS || is_cancelled(j, PAUSE_MS))
            return false;
    }
    return true;
}

static void judge_one(struct judging *j, size_t at)
{
    struct judge_test_result *to = &j->result->tests[at];
    struct err err;
    unsigned attempt = 0;
    int r;
    do {
        err = (struct err){0};
        test_result_clear(to);
        r = judge_test_run(&j->bench, &j->bench.spec->tests[at], to, &err);
        attempt++;
    } while (r < 0 && may_retry(j, &err, attempt));
    to->attempts = attempt;
    if (r < 0) {
        to->verdict = JUDGE_INTERNAL_ERROR;
        to->points = 0;
        (void)snprintf(to->message, sizeof(to->message), "not judged after %u attempts: %.400s",
            attempt, err.message);
    }
}

/* Whether a failed test before this one makes this one unnecessary. Earlier tests may still be
 * undecided. */
static bool is_stopped(const struct judging *j, size_t at)
{
    const struct judge_spec *spec = j->bench.spec;
    int group = spec->tests[at].group;
    if (spec->stop == STOP_IN_GROUP && group >= 0)
        return j->groups[group].failed_at < at;
    return spec->stop == STOP_AT_FIRST && j->failed_at < at;
}

/* 1: the test may run; -1: it need not run; 0: not known yet. */
static int is_wanted(const struct judging *j, size_t at)
{
    const struct judge_spec *spec = j->bench.spec;
    int group = spec->tests[at].group;
    int wanted = 1;
    if (j->result->cancelled || is_stopped(j, at))
        return -1;
    for (size_t i = 0; group >= 0 && i < spec->groups[group].depends.count; i++) {
        const struct progress *other = &j->groups[spec->groups[group].depend_at[i]];
        if (other->rejected)
            return -1;
        wanted = other->open ? 0 : wanted;
    }
    return wanted;
}

/* Decides tests in their order, as far as all tests before them are done. */
static void tell(struct judging *j)
{
    struct judge_result *result = j->result;
    while (j->told < result->test_count) {
        size_t at = j->told;
        struct judge_test_result *test = &result->tests[at];
        if (j->states[at] == OPEN && is_wanted(j, at) < 0)
            j->states[at] = DONE;
        if (j->states[at] != DONE)
            return;
        /* This test ran before an earlier test had failed. */
        if (test->attempts && is_stopped(j, at)) {
            result->cpu_ms += test->run.run.usage.cpu_ms + test->other_cpu_ms;
            test_result_clear(test);
        }
        j->states[at] = TOLD;
        j->told++;
        int group = j->bench.spec->tests[at].group;
        if (group >= 0) {
            j->groups[group].open--;
            j->groups[group].rejected |= test->verdict != JUDGE_ACCEPTED;
        }
        result->cpu_ms += test->run.run.usage.cpu_ms + test->other_cpu_ms;
        if (j->watch->tested)
            j->watch->tested(j->watch->context, at, test);
    }
}

/* Returns the next test to run, or SIZE_MAX for none. Sets *ret_wait when a test may become
 * available later. */
static size_t pick(struct judging *j, bool *ret_wait)
{
    *ret_wait = false;
    for (size_t i = j->told; i < j->result->test_count; i++) {
        if (j->states[i] != OPEN)
            continue;
        int wanted = is_wanted(j, i);
        if (wanted > 0)
            return i;
        if (wanted == 0)
            *ret_wait = true;
    }
    return SIZE_MAX;
}

static void note_done(struct judging *j, size_t at)
{
    const struct judge_test_result *test = &j->result->tests[at];
    j->states[at] = DONE;
    j->running--;
    int group = j->bench.spec->tests[at].group;
    if (is_failure(test->verdict)) {
        j->failed_at = at < j->failed_at ? at : j->failed_at;
        if (group >= 0 && at < j->groups[group].failed_at)
            j->groups[group].failed_at = at;
    }
    if (is_cancelled(j, 0))
        j->result->cancelled = true;
    tell(j);
    (void)pthread_cond_broadcast(&j->changed);
}

static void add_workers(struct judging *j);

/* Takes tests until none is left. Called with the lock held, and returns with it held. */
static void work(struct judging *j, bool is_first)
{
    for (;;) {
        bool wait;
        if (!is_first && j->watch->keep && !j->watch->keep(j->watch->context))
            return;
        if (is_first)
            add_workers(j);
        size_t at = pick(j, &wait);
        if (at != SIZE_MAX) {
            j->states[at] = RUNNING;
            j->running++;
            (void)pthread_mutex_unlock(&j->lock);
            judge_one(j, at);
            (void)pthread_mutex_lock(&j->lock);
            note_done(j, at);
        } else if ((wait || is_first) && j->running) {
            (void)pthread_cond_wait(&j->changed, &j->lock);
        } else {
            return;
        }
    }
}

static void *work_beside(void *arg)
{
    struct judging *j = arg;
    (void)pthread_mutex_lock(&j->lock);
    work(j, false);
    j->workers--;
    (void)pthread_mutex_unlock(&j->lock);
    if (j->watch->less)
        j->watch->less(j->watch->context);
    return NULL;
}

/* Starts as many threads as are allowed and as there are tests for. */
static void add_workers(struct judging *j)
{
    const struct judge_watch *watch = j->watch;
    size_t open = 0;
    for (size_t i = j->told; i < j->result->test_count; i++)
        open += j->states[i] == OPEN;
    while (j->workers + 1 < j->bench.spec->parallel && j->workers + 1 < open &&
           j->thread_count < JUDGE_MAX_PARALLEL && !j->result->cancelled) {
        if (watch->more && !watch->more(watch->context))
            return;
        if (thread_start(&j->threads[j->thread_count], work_beside, j) < 0) {
            if (watch->less)
                watch->less(watch->context);
            return;
        }
        j->thread_count++;
        j->workers++;
    }
}

static void run_tests(struct judging *j)
{
    (void)pthread_mutex_lock(&j->lock);
    work(j, true);
    tell(j);
    (void)pthread_mutex_unlock(&j->lock);
    for (unsigned i = 0; i < j->thread_count; i++)
        (void)pthread_join(j->threads[i], NULL);
}

/* Points of a group. With points of its own: these, times the share of points that its worst
 * test got. Without: the sum of its tests. */
static void count_group(const struct judge_spec *spec, size_t at, struct judge_result *result)
{
    const struct judge_group *group = &spec->groups[at];
    struct judge_group_result *to = &result->groups[at];
    double worst = 1;
    for (size_t i = 0; i < spec->test_count; i++) {
        const struct judge_test_result *test = &result->tests[i];
        double max = spec->tests[i].points;
        if (spec->tests[i].group != (int)at)
            continue;
        double share = max > 0 ? test->points / max : test->verdict == JUDGE_ACCEPTED;
        worst = fmin(worst, share);
        to->points += test->points;
        to->max_points += max;
        if (to->verdict == JUDGE_ACCEPTED || test->verdict == JUDGE_INTERNAL_ERROR)
            to->verdict = test->verdict;
    }
    if (group->has_points) {
        to->points = worst * group->points;
        to->max_points = group->points;
    }
}

static void count_all(const struct judge_spec *spec, struct judge_result *result)
{
    for (size_t i = 0; i < spec->group_count; i++) {
        count_group(spec, i, result);
        result->points += result->groups[i].points;
        result->max_points += result->groups[i].max_points;
    }
    for (size_t i = 0; i < spec->test_count; i++) {
        const struct judge_test_result *test = &result->tests[i];
        if (spec->tests[i].group == JUDGE_NO_GROUP) {
            result->points += test->points;
            result->max_points += spec->tests[i].points;
        }
        result->failed_by_us += test->verdict == JUDGE_INTERNAL_ERROR;
        if (result->verdict == JUDGE_ACCEPTED)
            result->verdict = test->verdict;
    }
    if (result->cancelled) {
        result->verdict = JUDGE_SKIPPED;
        (void)snprintf(result->message, sizeof(result->message), "cancelled");
    } else if (result->failed_by_us) {
        result->verdict = JUDGE_INTERNAL_ERROR;
        (void)snprintf(result->message, sizeof(result->message),
            "%zu of %zu tests could not be judged; the rest is not a verdict on the solution",
            result->failed_by_us, spec->test_count);
    }
}

/* Compiles, and retries a failure of Hermes. *ret is NULL when there is no program. */
static int prepare(struct judging *j, const struct run_plan *plan, struct run_result *result,
    struct engine_program **ret, struct err *err)
{
    const struct run_watch watch = {.cancel_fd = j->watch->cancel_fd, .purse = j->watch->purse};
    unsigned attempt = 0;
    int r;
    do {
        *err = (struct err){0};
        r = engine_prepare(j->engine, plan, &watch, result, ret, err);
        attempt++;
    } while (r < 0 && may_retry(j, err, attempt));
    j->result->cpu_ms += result->compile.usage.cpu_ms;
    return r;
}

static int prepare_other(struct judging *j, const char *who, const struct run_plan *plan,
    struct engine_program **ret, struct err *err)
{
    struct run_result compiled;
    run_result_init(&compiled, 1 << 20);
    int r = prepare(j, plan, &compiled, ret, err);
    if (r == 0 && !*ret) {
        j->result->verdict = JUDGE_INTERNAL_ERROR;
        (void)snprintf(j->result->message, sizeof(j->result->message),
            "the %s could not be compiled: %.400s", who,
            compiled.compile.err.len ? compiled.compile.err.data : compiled.run.message);
    }
    run_result_done(&compiled);
    return r < 0 ? err_wrap(err, r, "%s", who) : 0;
}

/* *ret_go_on becomes true when all programs are ready. */
static int prepare_all(
    struct judging *j, const struct judge_plan *plan, bool *ret_go_on, struct err *err)
{
    const struct judge_spec *spec = plan->spec;
    struct judge_programs *programs = &j->bench.programs;
    struct judge_result *result = j->result;
    int r = prepare(j, &plan->solution, &result->compile, &programs->solution, err);
    if (r == 0 && !programs->solution) {
        result->cancelled = result->compile.run.status == RUN_CANCELLED;
        result->verdict = JUDGE_COMPILE_ERROR;
        (void)snprintf(
            result->message, sizeof(result->message), "%s", result->compile.run.message);
        return 0;
    }
    if (r == 0 && spec->has_checker)
        r = prepare_other(j, "checker", &plan->checker, &programs->checker, err);
    if (r == 0 && spec->has_interactor)
        r = prepare_other(j, "interactor", &plan->interactor, &programs->interactor, err);
    *ret_go_on = r == 0 && (!spec->has_checker || programs->checker) &&
                 (!spec->has_interactor || programs->interactor);
    return r;
}

int judge_run(struct engine *engine, const struct judge_plan *plan,
    const struct judge_watch *watch, struct judge_result *result, struct err *err)
{
    const struct judge_spec *spec = plan->spec;
    struct judging j = {.engine = engine,
        .watch = watch,
        .result = result,
        .bench = {.spec = spec, .cancel_fd = watch->cancel_fd, .purse = watch->purse},
        .lock = PTHREAD_MUTEX_INITIALIZER,
        .changed = PTHREAD_COND_INITIALIZER,
        .failed_at = SIZE_MAX};
    bool go_on = false;
    cleanup_free enum state *states = xcalloc(spec->test_count, sizeof(*states));
    cleanup_free struct progress *groups = xcalloc(spec->group_count + 1, sizeof(*groups));
    j.states = states;
    j.groups = groups;
    for (size_t i = 0; i < spec->group_count; i++)
        groups[i].failed_at = SIZE_MAX;
    for (size_t i = 0; i < spec->test_count; i++)
        groups[spec->tests[i].group >= 0 ? (size_t)spec->tests[i].group : spec->group_count]
            .open++;
    run_result_init(&result->compile, 1 << 20);
    result->tests = xcalloc(spec->test_count, sizeof(*result->tests));
    result->groups = xcalloc(spec->group_count + 1, sizeof(*result->groups));
    result->test_count = spec->test_count;
    for (size_t i = 0; i < spec->test_count; i++)
        test_result_clear(&result->tests[i]);
    if (!result->id[0])
        id_make("jdg_", result->id);
    if (watch->started)
        watch->started(watch->context);
    int r = prepare_all(&j, plan, &go_on, err);
    if (go_on)
        run_tests(&j);
    if (r == 0)
        count_all(spec, result);
    engine_program_free(j.bench.programs.solution);
    engine_program_free(j.bench.programs.checker);
    engine_program_free(j.bench.programs.interactor);
    return r;
}
