/* SPDX-License-Identifier: Apache-2.0 */

/* hermes selftest: runs the attack cases on the user's own host, several at a time, and reports
 * them in the order of their ids. With --controls it also runs each case without the barriers
 * that stop it, to prove that these barriers do. */

#include "cli/cli.h"

#include "attack/run.h"
#include "base/alloc.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/os/fs.h"
#include "base/str.h"
#include "cli/color.h"
#include "cli/options.h"
#include "cli/output.h"
#include "run/encode.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

enum {
    EXIT_FAILED = 1,
    WARM_PARKED = 2, /* ready boxes per language with --warm */
    JOBS_MAX = 64,
    CPU_TRIES = 3, /* see run_alone() */
};

enum { OPT_CONTROLS = 256, OPT_ONLY, OPT_GROUP, OPT_MIN_LEVEL, OPT_JSON, OPT_CASES, OPT_WARM };

static const struct option_row options[] = {
    {"controls", OPT_CONTROLS, NULL,
        "also run each case without the barrier that stops it: the attack must succeed"},
    {"only", OPT_ONLY, "ID", "only this case (O-07) or these (O-2*); may be repeated"},
    {"group", OPT_GROUP, "NAME", "only the cases of a group, such as filesystem"},
    {CLI_MIN_LEVEL(OPT_MIN_LEVEL)},
    {"warm", OPT_WARM, NULL,
        "only cases in Python and JavaScript, in boxes of interpreters that were started "
        "before"},
    {"jobs", 'j', "N", "cases at the same time (1 to 64; default: the number of cores)"},
    {"json", OPT_JSON, NULL, "print all results, or the error, as JSON"},
    {"cases", OPT_CASES, "DIR",
        "directory of the cases (default: the installed ones, $HERMES_CASES)"},
    {0},
};

const struct option_table selftest_options = {
    .summary = "attack the boxes of this host and show that they hold",
    .command = "hermes selftest",
    .operands = "[ID...]",
    .rows = options,
    .before =
        "Attacks the boxes of this host with the cases that Hermes is tested with. Prints one "
        "line per case.",
    .after =
        "Harmless for the host: every case runs in a box and attacks targets that are made for "
        "it.\n\n"
        "Exit status: 0 all passed; 1 something failed; 2 wrong usage; 125 when Hermes itself "
        "failed; "
        "130 after Ctrl-C.",
};

/* A case or its control. */
struct item {
    const struct attack_case *c;
    bool control;
    struct attack_outcome outcome;
};

struct selftest {
    struct strv only;
    const char *group;
    const char *cases_dir;
    struct lang_dirs dirs;
    bool controls;
    bool json;
    unsigned jobs;
    unsigned min_level;

    struct attack_cases cases;
    struct runtime_registry runtimes;
    struct canary_home home;
    struct attack_bench bench;

    pthread_rwlock_t cores; /* a case that needs all cores holds it for writing */
    pthread_mutex_t lock;   /* protects everything below */
    struct item *items;
    size_t count;
    size_t next; /* index of the next item to start */
    size_t finished;
    size_t told; /* items printed so far, in order */
    size_t tally[ATTACK_SKIPPED + 1];
};

static void take_option(void *to, int key, char *arg)
{
    struct selftest *s = to;
    switch (key) {
    case OPT_CONTROLS:
        s->controls = true;
        break;
    case OPT_ONLY:
    case OPTION_NONE:
        strv_add(&s->only, arg);
        break;
    case OPT_GROUP:
        s->group = arg;
        break;
    case OPT_MIN_LEVEL:
        s->min_level = cli_min_level(selftest_options.command, arg);
        break;
    case 'j':
        s->jobs = options_number(selftest_options.command, "jobs", arg, JOBS_MAX);
        break;
    case OPT_WARM:
        s->bench.warm = true;
        break;
    case OPT_JSON:
        s->json = true;
        break;
    case OPT_CASES:
        s->cases_dir = arg;
        break;
    default:
        break;
    }
}

static bool is_wanted(const struct selftest *s, const struct attack_case *c)
{
    if (s->bench.warm && !str_eq(c->language, "python") && !str_eq(c->language, "javascript"))
        return false;
    bool wanted = s->only.count == 0;
    for (size_t i = 0; i < s->only.count && !wanted; i++)
        wanted = str_glob_match(s->only.items[i], c->id);
    return wanted && (!s->group || str_eq(s->group, c->group));
}

static int select_items(struct selftest *s, struct err *err)
{
    s->items = xcalloc(s->cases.count * 2, sizeof(*s->items));
    for (size_t i = 0; i < s->cases.count; i++) {
        const struct attack_case *c = &s->cases.items[i];
        if (!is_wanted(s, c))
            continue;
        s->items[s->count++].c = c;
        if (s->controls && c->has_control)
            s->items[s->count++] = (struct item){.c = c, .control = true};
    }
    return s->count ? 0
                    : err_set(err, ERR_INVALID, ENOENT,
                          "no case has that id or group; selftest/README.md explains both");
}

/* Loads only the languages of the chosen cases and of the victim: the spawner builds a root
 * tree for each. */
static int load_runtimes(struct selftest *s, struct err *err)
{
    static const char *const names[] = {"bash", "c", "cpp", "javascript", "python"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        bool used = str_eq(names[i], "bash"); /* attack_calibrate() needs it */
        for (size_t k = 0; k < s->count && !used; k++)
            used = str_eq(s->items[k].c->language, names[i]) ||
                   (s->items[k].c->victim && str_eq(names[i], "python"));
        if (!used)
            continue;
        struct runtime_registry one = {0};
        int r = runtime_load(&one, &s->dirs, names[i], err);
        if (r < 0)
            return r;
        struct runtime_registry *all = &s->runtimes;
        all->items = xreallocarray(all->items, all->count + 1, sizeof(*all->items));
        all->items[all->count++] = one.items[0]; /* moved: only the array of `one` is left */
        free(one.items);
    }
    return 0;
}

static int open_bench(struct selftest *s, struct err *err)
{
    cleanup_free char *dir = attack_cases_dir(s->cases_dir);
    if (!dir)
        return err_set(err, ERR_UNAVAILABLE, ENOENT,
            "cannot find the attack cases; name their directory with --cases");
    int r = attack_cases_load(&s->cases, dir, err);
    if (r == 0)
        r = select_items(s, err);
    if (r == 0)
        r = load_runtimes(s, err);
    if (r == 0)
        r = canary_home_make(&s->home, err);
    if (r < 0)
        return r;
    /* A canary as well: nothing reads it, and no box may see it. No thread runs yet. */
    (void)setenv("HERMES_CANARY", s->home.token, 1);
    struct engine_options engine = {.runtimes = &s->runtimes,
        .dirs = s->dirs,
        .spawner_path = cli_spawner_path(),
        .min_level = s->min_level,
        .zygotes = s->bench.warm,
        .park = WARM_PARKED,
        .allow_controls = s->controls,
        .host_roots = s->controls};
    limits_maxima(&engine.maxima);
    s->bench.runtimes = &s->runtimes;
    s->bench.cases = &s->cases;
    s->bench.home = &s->home;
    attack_load_victim(&s->bench);
    r = engine_open(&s->bench.engine, &engine, err);
    return r < 0 ? r : attack_calibrate(&s->bench, err);
}

static void close_bench(struct selftest *s)
{
    engine_close(s->bench.engine);
    canary_home_remove(&s->home);
    runtime_registry_done(&s->runtimes);
    attack_cases_done(&s->cases);
    free(s->bench.victim);
    free(s->items);
    strv_done(&s->only);
}

static const char *verdict_word(enum attack_verdict verdict)
{
    static const char *const words[] = {"    ", "ok  ", "FAIL", "skip"};
    return words[verdict];
}

static void show_progress(const struct selftest *s)
{
    if (!s->json && isatty(STDERR_FILENO) && s->finished < s->count)
        (void)fprintf(stderr, "\r\033[K%zu of %zu", s->finished, s->count);
}

static void clear_progress(const struct selftest *s)
{
    if (!s->json && isatty(STDERR_FILENO))
        (void)fputs("\r\033[K", stderr);
}

/* Prints the finished items that are next in order. */
static void tell(struct selftest *s)
{
    clear_progress(s);
    for (; s->told < s->count && s->items[s->told].outcome.verdict; s->told++) {
        const struct item *item = &s->items[s->told];
        const struct attack_outcome *outcome = &item->outcome;
        s->tally[outcome->verdict]++;
        if (s->json || outcome->cancelled)
            continue;
        enum color color = outcome->verdict == ATTACK_PASSED   ? COLOR_GOOD
                           : outcome->verdict == ATTACK_FAILED ? COLOR_BAD
                                                               : COLOR_WARN;
        (void)printf("%s%s%s %s %s%s%s%s\n", color_on(stdout, color),
            verdict_word(outcome->verdict), color_off(stdout), item->c->id,
            item->control ? "control: " : "", item->c->name, outcome->why[0] ? ": " : "",
            outcome->why);
    }
    (void)fflush(stdout);
    show_progress(s);
}

static bool is_stopped(const struct selftest *s)
{
    struct pollfd fd = {.fd = s->bench.cancel_fd, .events = POLLIN};
    return poll(&fd, 1, 0) > 0;
}

/* CPU time of the whole host since boot, in seconds. */
static double host_busy_s(void)
{
    char text[256];
    cleanup_fclose FILE *f = fopen("/proc/stat", "re");
    if (!f || !fgets(text, sizeof(text), f) || !str_has_prefix(text, "cpu "))
        return 0;
    unsigned long long ticks = 0;
    char *at = text + strlen("cpu ");
    for (int i = 0; i < 3; i++) /* user, nice, system */
        ticks += strtoull(at, &at, 10);
    return (double)ticks / (double)sysconf(_SC_CLK_TCK);
}

/* The control of the CPU limit must show that a box can use more than one core. It runs alone,
 * up to CPU_TRIES times. It is skipped when no two cores of the host were free. */
static void run_alone(struct selftest *s, const struct item *item, struct attack_outcome *ret)
{
    const double cores = (double)sysconf(_SC_NPROCESSORS_ONLN);
    bool busy = true;
    for (int i = 0; i < CPU_TRIES && busy; i++) {
        double before_s = host_busy_s();
        attack_run(&s->bench, item->c, item->control, ret);
        double others_s = host_busy_s() - before_s - ret->usage.cpu_ms / 1000;
        busy = ret->verdict == ATTACK_FAILED && !ret->cancelled && ret->ran &&
               cores - others_s * 1000 / ret->usage.wall_ms < 2 * 0.85;
    }
    if (busy) {
        ret->verdict = ATTACK_SKIPPED;
        (void)snprintf(ret->why, sizeof(ret->why), "no two cores of the host were free");
    }
}

static void run_item(struct selftest *s, const struct item *item, struct attack_outcome *ret)
{
    bool alone = item->control && (item->c->remove & BARRIER_CPU);
    if (alone) {
        (void)pthread_rwlock_wrlock(&s->cores);
        run_alone(s, item, ret);
    } else {
        (void)pthread_rwlock_rdlock(&s->cores);
        attack_run(&s->bench, item->c, item->control, ret);
    }
    (void)pthread_rwlock_unlock(&s->cores);
}

static void *work(void *context)
{
    struct selftest *s = context;
    (void)pthread_mutex_lock(&s->lock);
    while (s->next < s->count && !is_stopped(s)) {
        struct item *item = &s->items[s->next++];
        struct attack_outcome outcome;
        (void)pthread_mutex_unlock(&s->lock);
        run_item(s, item, &outcome);
        (void)pthread_mutex_lock(&s->lock);
        item->outcome = outcome;
        s->finished++;
        tell(s);
    }
    (void)pthread_mutex_unlock(&s->lock);
    return NULL;
}

static void run_all(struct selftest *s)
{
    pthread_t threads[JOBS_MAX];
    unsigned started = 0;
    (void)pthread_mutex_init(&s->lock, NULL);
    (void)pthread_rwlock_init(&s->cores, NULL);
    while (started + 1 < s->jobs && pthread_create(&threads[started], NULL, work, s) == 0)
        started++;
    (void)work(s);
    for (unsigned i = 0; i < started; i++)
        (void)pthread_join(threads[i], NULL);
    (void)pthread_rwlock_destroy(&s->cores);
    (void)pthread_mutex_destroy(&s->lock);
    clear_progress(s);
}

static void print_json(const struct selftest *s)
{
    json_t *array = json_array();
    for (size_t i = 0; i < s->count; i++)
        (void)json_array_append_new(
            array, attack_json(s->items[i].c, s->items[i].control, &s->items[i].outcome));
    output_json(array, RESULT_JSON_FLAGS);
}

static int conclude(struct selftest *s, int signal_fd)
{
    struct signalfd_siginfo caught;
    if (s->json)
        print_json(s);
    if (read(signal_fd, &caught, sizeof(caught)) == (ssize_t)sizeof(caught)) {
        (void)fprintf(stderr, "hermes selftest: stopped\n");
        return 128 + (int)caught.ssi_signo;
    }
    if (!s->json) {
        (void)printf(
            "%zu passed, %zu failed", s->tally[ATTACK_PASSED], s->tally[ATTACK_FAILED]);
        if (s->tally[ATTACK_SKIPPED])
            (void)printf(", %zu skipped", s->tally[ATTACK_SKIPPED]);
        (void)printf("\n");
    }
    return s->tally[ATTACK_FAILED] ? EXIT_FAILED : 0;
}

int cmd_selftest(int argc, char **argv)
{
    struct selftest s = {
        .min_level = LEVEL_STRONG, .cases_dir = getenv("HERMES_CASES"), .dirs = cli_dirs()};
    struct err err = {0};
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    s.jobs = cores < 1 ? 1 : cores > JOBS_MAX ? JOBS_MAX : (unsigned)cores;
    options_parse(&selftest_options, argc, argv, take_option, &s);
    cleanup_close int signal_fd = cli_catch_signals();
    s.bench.cancel_fd = signal_fd;
    int status;
    if (open_bench(&s, &err) < 0) {
        status = cli_fail("selftest", &err);
    } else {
        run_all(&s);
        status = conclude(&s, signal_fd);
    }
    close_bench(&s);
    return status;
}
