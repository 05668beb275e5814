/* SPDX-License-Identifier: Apache-2.0 */

/* hermes judge: judges a solution against a problem's folder, without a server. Prints one line
 * per test as it is decided, or the whole answer as JSON. */

#include "cli/cli.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/os/terminal.h"
#include "base/str.h"
#include "cli/color.h"
#include "cli/judge_folder.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "judge/encode.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OPT_JSON = 256, OPT_STOP, OPT_NO_CACHE, OPT_NETWORK, OPT_MIN_LEVEL, PROGRAMS = 3 };
/* NETWORKS_READY: tests run in parallel. */
enum { EXIT_REJECTED = 1, EXIT_CANCELLED = 130, NETWORKS_READY = 8, VERDICT_WIDTH = 18 };

static const struct option_row options[] = {
    {"language", 'l', "LANG", "language of the solution (default: by its name)"},
    {"parallel", 'j', "N",
        "tests at the same time (1 to 64; default: twice the cores of this machine)"},
    {"stop", OPT_STOP, NULL, "stop at the first test that fails"},
    {CLI_NO_CACHE(OPT_NO_CACHE)},
    {CLI_NETWORK(OPT_NETWORK)},
    {CLI_MIN_LEVEL(OPT_MIN_LEVEL)},
    {"json", OPT_JSON, NULL, "print the whole answer, or the error, as JSON"},
    {0},
};

const struct option_table judge_options = {
    .summary = "judge a solution against the folder of a problem; needs no server",
    .command = "hermes judge",
    .operands = "PROBLEM_DIR SOLUTION",
    .rows = options,
    .before =
        "Judges SOLUTION against the tests in PROBLEM_DIR: NAME.in with NAME.out or NAME.ans. "
        "Optional: checker.EXT, interactor.EXT, and problem.json with limits and other "
        "settings.",
    .after = "Exit status: 0 accepted; 1 not accepted; 2 wrong usage; 125 when Hermes, the "
             "checker or the interactor failed; 130 after Ctrl-C.\n\n"
             "Examples:\n"
             "  hermes judge problems/sum solution.cpp\n"
             "  hermes judge --network allow=api.example.com problems/fetch solution.py",
};

struct judge_args {
    const char *dir;
    const char *solution;
    const char *language;
    uint32_t parallel;
    bool stop, json, no_cache, has_network;
    struct network_policy *network; /* of the solution; NULL: none */
    struct engine_options engine;
    struct problem problem;
    struct err err;
};

static void take_option(void *to, int key, char *arg)
{
    struct judge_args *args = to;
    switch (key) {
    case 'l':
        args->language = arg;
        break;
    case 'j':
        args->parallel =
            options_number(judge_options.command, "parallel", arg, JUDGE_MAX_PARALLEL);
        break;
    case OPT_STOP:
        args->stop = true;
        break;
    case OPT_NO_CACHE:
        args->no_cache = true;
        break;
    case OPT_NETWORK:
        cli_network(judge_options.command, arg, &args->network);
        args->has_network = true;
        break;
    case OPT_MIN_LEVEL:
        args->engine.min_level = cli_min_level(judge_options.command, arg);
        break;
    case OPT_JSON:
        args->json = true;
        break;
    case OPTION_NONE:
        if (args->solution)
            options_misuse(judge_options.command, "too many arguments: `%s`", arg);
        *(args->dir ? &args->solution : &args->dir) = arg;
        break;
    default:
        break;
    }
}

/* Twice the cores, as the server does: one box is prepared while another runs. */
static unsigned usual_parallel(void)
{
    cpu_set_t set;
    int count = sched_getaffinity(0, sizeof(set), &set) == 0 ? 2 * CPU_COUNT(&set) : 2;
    return count < 2 ? 2 : count > JUDGE_MAX_PARALLEL ? JUDGE_MAX_PARALLEL : (unsigned)count;
}

/* Columns of the terminal; SIZE_MAX when stdout is something else. */
static size_t terminal_width(void)
{
    int columns = terminal_columns(STDOUT_FILENO);
    return columns ? (size_t)columns : SIZE_MAX;
}

static void print_verdict(enum judge_verdict verdict, int width)
{
    (void)printf("%s%-*s%s",
        color_on(stdout, verdict == JUDGE_ACCEPTED ? COLOR_GOOD : COLOR_BAD), width,
        judge_verdict_name(verdict), color_off(stdout));
}

static void on_tested(void *context, size_t index, const struct judge_test_result *test)
{
    const struct judge_args *args = context;
    const struct run_usage *usage = &test->run.run.usage;
    size_t width = terminal_width();
    progress_end();
    size_t used = (size_t)printf("%-12s ", args->problem.judge.spec.tests[index].name);
    used += VERDICT_WIDTH;
    print_verdict(test->verdict, test->ran || test->message[0] ? VERDICT_WIDTH : 0);
    if (test->ran)
        used += (size_t)printf(
            " %7.0f ms %8llu KiB", usage->cpu_ms, (unsigned long long)usage->memory_peak_kb);
    if (test->message[0] && width > used + 2) {
        (void)printf("  ");
        output_clean(test->message, width - used - 2);
    }
    (void)putchar('\n');
    (void)fflush(stdout);
}

static void print_total(const struct judge_args *args, const struct judge_result *result)
{
    const struct judge_spec *spec = &args->problem.judge.spec;
    if (result->verdict == JUDGE_COMPILE_ERROR)
        (void)fwrite(
            result->compile.compile.err.data, 1, result->compile.compile.err.len, stdout);
    for (size_t i = 0; result->groups && i < spec->group_count; i++) {
        (void)printf("group %-6s ", spec->groups[i].name);
        print_verdict(result->groups[i].verdict, VERDICT_WIDTH);
        (void)printf(
            " %g of %g points\n", result->groups[i].points, result->groups[i].max_points);
    }
    print_verdict(result->verdict, 0);
    (void)printf(", %g of %g points", result->points, result->max_points);
    if (result->message[0]) {
        (void)printf(": ");
        output_clean(result->message, SIZE_MAX);
    }
    (void)putchar('\n');
}

static int print_answer(const struct judge_args *args, const struct judge_result *result)
{
    if (args->json)
        output_json(
            judge_json(&args->problem.judge.spec, result, ENCODE_UTF8), RESULT_JSON_FLAGS);
    else
        print_total(args, result);
    return result->cancelled                         ? EXIT_CANCELLED
           : result->verdict == JUDGE_ACCEPTED       ? 0
           : result->verdict == JUDGE_INTERNAL_ERROR ? EXIT_HERMES
                                                     : EXIT_REJECTED;
}

/* The programs of a judgement; those that the problem does not have are empty. */
static void list_programs(struct judge_args *args, struct run_spec *ret[PROGRAMS])
{
    struct judge_spec *spec = &args->problem.judge.spec;
    ret[0] = &spec->solution;
    ret[1] = &spec->checker;
    ret[2] = &spec->interactor;
}

/* Reads the problem and what the programs need before the engine starts. */
static int load(struct judge_args *args)
{
    struct run_spec *programs[PROGRAMS];
    struct judge_spec *spec = &args->problem.judge.spec;
    int r = problem_load(&args->problem, args->dir, args->solution, args->language, &args->err);
    if (r == 0 && !args->no_cache)
        r = cli_cache(&args->engine.cache, &args->err);
    if (r < 0)
        return r;
    if (args->has_network) {
        free(spec->solution.network);
        spec->solution.network = take_ptr(args->network);
    }
    list_programs(args, programs);
    for (size_t i = 0; r == 0 && i < PROGRAMS; i++) {
        if (!args->no_cache)
            programs[i]->cache_scope = xasprintf("uid %u", geteuid());
        r = cli_network_permit(programs[i]->network, &args->engine.network, &args->err);
    }
    if (args->parallel || !spec->parallel)
        spec->parallel = args->parallel ? args->parallel : usual_parallel();
    if (args->stop)
        spec->stop = STOP_AT_FIRST;
    return r;
}

/* Whether this host enforces the networks that the programs ask for. */
static int check_networks(struct judge_args *args, struct engine *engine)
{
    struct run_spec *programs[PROGRAMS];
    int r = 0;
    list_programs(args, programs);
    for (size_t i = 0; r == 0 && i < PROGRAMS; i++) {
        if (programs[i]->network)
            r = engine_network_ready(engine, programs[i]->network->mode, &args->err);
    }
    return r;
}

static int judge_loaded(struct judge_args *args, struct engine *engine, int signal_fd)
{
    struct judge_result result = {0};
    const struct judge_watch watch = {
        .context = args, .tested = args->json ? NULL : on_tested, .cancel_fd = signal_fd};
    bool is_compiled = args->problem.judge.spec.solution.runtime->compiled;
    progress_begin("%s %s", is_compiled ? "compiling" : "starting", args->solution);
    CLEANUP(judge_plan_done) struct judge_plan plan = {0};
    int r =
        judge_plan_make(&args->problem.judge.spec, engine_maxima(engine), &plan, &args->err);
    if (r == 0)
        r = check_networks(args, engine);
    if (r == 0)
        r = judge_run(engine, &plan, &watch, &result, &args->err);
    progress_end();
    int status = r < 0 ? cli_fail("judge", &args->err) : print_answer(args, &result);
    judge_result_done(&result);
    return status;
}

static int judge_all(struct judge_args *args)
{
    struct engine *engine = NULL;
    cleanup_close int signal_fd = cli_catch_signals();
    int r = load(args);
    if (r < 0)
        return cli_fail("judge", &args->err);
    args->engine.runtimes = &args->problem.runtimes;
    progress_begin("preparing %s", args->solution);
    r = engine_start(&engine, &args->engine, &args->err);
    if (r == 0)
        r = engine_register(engine, &args->engine, &args->err);
    progress_end();
    int status = r < 0 ? cli_fail("judge", &args->err) : judge_loaded(args, engine, signal_fd);
    if (r < 0) /* the spawner's process may still be using our memory, see start_program() */
        engine_close(engine);
    else
        engine_leave(engine);
    return status;
}

int cmd_judge(int argc, char **argv)
{
    struct judge_args args = {.engine = {.min_level = LEVEL_STRONG,
                                  .networks = NETWORKS_READY,
                                  .dirs = cli_dirs(),
                                  .spawner_path = cli_spawner_path()}};
    args.problem.dirs = &args.engine.dirs;
    limits_maxima(&args.engine.maxima);
    options_parse(&judge_options, argc, argv, take_option, &args);
    if (!args.solution)
        options_misuse(judge_options.command, "missing argument %s",
            args.dir ? "SOLUTION" : "PROBLEM_DIR");
    int status = judge_all(&args);
    free(args.network);
    problem_done(&args.problem);
    return status;
}
