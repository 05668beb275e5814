/* SPDX-License-Identifier: Apache-2.0 */

/* hermes bench: measures what a box costs on this host. It runs hello in each language bare, in
 * a warm box, in a cold box and in other installed sandboxes. They take turns in one process,
 * so that other load on the machine affects all alike. Then it measures runs per second with
 * several clients. Absolute times depend on the machine; ratios to the bare interpreter can be
 * compared. */

#include "cli/bench/sides.h"
#include "cli/cli.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"
#include "cli/options.h"
#include "cli/output.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* SECONDS is how long each load measurement runs. */
enum { ROUNDS = 30, ROUNDS_MAX = 10000, SECONDS = 2, CLIENTS_MAX = 64 };

static const unsigned client_counts[] = {1, 2, 8, 64};

struct bench_args {
    struct strv languages;
    uint64_t rounds;
    bool json;
    bool no_load;
    int cancel_fd;
    struct bench bench;
    json_t *answer;
    struct err err;
};

static const struct option_row options[] = {
    {"language", 'l', "NAME", "only this language; may be repeated"},
    {"rounds", 'n', "COUNT", "how often each side runs (30)"},
    {"no-load", 'q', NULL, "leave the clients out"},
    {"json", 'j', NULL, "print the figures as JSON"},
    {0},
};

const struct option_table bench_options = {
    .summary = "measure what a box costs on this host",
    .command = "hermes bench",
    .rows = options,
    .before =
        "Measures what a box costs on this host: hello in each language bare, in a warm and in "
        "a "
        "cold box, and under bwrap and nsjail where they are installed, in interleaved rounds; "
        "then "
        "how many runs a second 1, 2, 8 and 64 clients get.",
    .after =
        "Warm boxes need root. Measure on an idle machine: `make bench` and docs/benchmarks.md "
        "have more, over HTTP.\n\n"
        "Exit status: 0; 2 wrong usage; 125 when Hermes itself failed; 130 after Ctrl-C.",
};

static void take_option(void *to, int key, char *arg)
{
    struct bench_args *args = to;
    switch (key) {
    case 'l':
        strv_add(&args->languages, arg);
        break;
    case 'n':
        args->rounds = options_number(bench_options.command, "rounds", arg, ROUNDS_MAX);
        break;
    case 'q':
        args->no_load = true;
        break;
    case 'j':
        args->json = true;
        break;
    default:
        break;
    }
}

static bool is_cancelled(const struct bench_args *args)
{
    struct pollfd fd = {.fd = args->cancel_fd, .events = POLLIN};
    return poll(&fd, 1, 0) > 0;
}

static void progress(const struct bench_args *args, const char *what, size_t at, size_t end)
{
    if (!args->json && isatty(STDERR_FILENO))
        (void)fprintf(stderr, at < end ? "\r\033[K%s, %zu of %zu" : "\r\033[K", what, at, end);
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double at_share(double *sorted, size_t count, double share)
{
    size_t at = (size_t)((double)count * share);
    return sorted[at < count ? at : count - 1];
}

/* Prints one row per side: name, p50, p99, ratio to bare. */
static void tell_rounds(
    struct bench_args *args, const struct subject *subject, double *ms[SIDE_COUNT])
{
    double bare = 0;
    json_t *rows = json_array();
    if (!args->json)
        (void)printf(
            "%-11s %-10s %9s %9s   to bare\n", subject->language, "", "p50 ms", "p99 ms");
    for (unsigned side = 0; side < SIDE_COUNT; side++) {
        if (!ms[side])
            continue;
        qsort(ms[side], args->rounds, sizeof(double), compare);
        double p50 = at_share(ms[side], args->rounds, 0.5);
        double p99 = at_share(ms[side], args->rounds, 0.99);
        if (side == SIDE_BARE)
            bare = p50;
        if (!args->json)
            (void)printf("%-11s %-10s %9.2f %9.2f   %5.2f\n", "", bench_side_name(side), p50,
                p99, p50 / bare);
        (void)json_array_append_new(
            rows, json_pack("{s:s,s:f,s:f,s:f}", "side", bench_side_name(side), "p50_ms", p50,
                      "p99_ms", p99, "ratio", p50 / bare));
    }
    (void)json_array_append_new(json_object_get(args->answer, "start"),
        json_pack("{s:s,s:I,s:o}", "language", subject->language, "rounds",
            (json_int_t)args->rounds, "sides", rows));
}

/* Runs the sides in turn. The first round does not count. */
static int measure(struct bench_args *args, const struct subject *subject)
{
    double *ms[SIDE_COUNT] = {0};
    int r = 0;
    for (unsigned side = 0; side < SIDE_COUNT; side++) {
        if (bench_has_side(&args->bench, subject, side))
            ms[side] = xcalloc(args->rounds, sizeof(double));
    }
    for (uint64_t round = 0; r == 0 && round <= args->rounds; round++) {
        progress(args, subject->language, round, args->rounds);
        for (unsigned side = 0; r == 0 && side < SIDE_COUNT; side++) {
            double taken = 0;
            if (!ms[side])
                continue;
            r = bench_run(&args->bench, subject, side, &taken, &args->err);
            if (round)
                ms[side][round - 1] = taken;
            if (r == 0 && is_cancelled(args))
                r = -EINTR;
        }
    }
    progress(args, "", 1, 1);
    if (r == 0)
        tell_rounds(args, subject, ms);
    for (unsigned side = 0; side < SIDE_COUNT; side++)
        free(ms[side]);
    return r;
}

struct client {
    const struct bench_args *args;
    const struct subject *subject;
    unsigned side;
    uint64_t end_ms;
    unsigned done;
    int error;
    pthread_t thread;
};

static void *be_client(void *context)
{
    struct client *c = context;
    struct err err = {0};
    double ms;
    while (!c->error && clock_ms() < c->end_ms && !is_cancelled(c->args)) {
        c->error = bench_run(&c->args->bench, c->subject, c->side, &ms, &err);
        c->done += !c->error;
    }
    return NULL;
}

/* Measures how many runs per second `count` threads complete. */
static int load(struct bench_args *args, const struct subject *subject, unsigned side,
    unsigned count, double *ret)
{
    struct client clients[CLIENTS_MAX];
    unsigned done = 0;
    unsigned started = 0;
    int error = 0;
    uint64_t begin_ms = clock_ms();
    for (; started < count; started++) {
        clients[started] = (struct client){.args = args,
            .subject = subject,
            .side = side,
            .end_ms = begin_ms + SECONDS * 1000ull};
        if (pthread_create(&clients[started].thread, NULL, be_client, &clients[started]))
            break;
    }
    for (unsigned i = 0; i < started; i++) {
        (void)pthread_join(clients[i].thread, NULL);
        done += clients[i].done;
        error = clients[i].error ? clients[i].error : error;
    }
    if (is_cancelled(args))
        return -EINTR;
    if (error)
        return err_set(&args->err, ERR_INTERNAL, -error, "a run failed with %u clients", count);
    *ret = done * 1000.0 / (double)(clock_ms() - begin_ms);
    return 0;
}

static int measure_load(struct bench_args *args, const struct subject *subject)
{
    const size_t counts = sizeof(client_counts) / sizeof(client_counts[0]);
    json_t *rows = json_array();
    int r = 0;
    if (!args->json)
        (void)printf("%-11s %-10s %9s   to bare\n", subject->language, "clients", "runs/s");
    for (size_t i = 0; r == 0 && i < counts; i++) {
        double bare = 0;
        for (unsigned side = 0; r == 0 && side <= SIDE_COLD; side++) {
            double rate = 0;
            if (!bench_has_side(&args->bench, subject, side))
                continue;
            progress(args, "clients", i, counts);
            if ((r = load(args, subject, side, client_counts[i], &rate)) < 0)
                break;
            progress(args, "", 1, 1);
            bare = side == SIDE_BARE ? rate : bare;
            if (!args->json)
                (void)printf("%-11s %2u %-7s %9.0f   %5.2f\n", "", client_counts[i],
                    bench_side_name(side), rate, rate / bare);
            (void)json_array_append_new(
                rows, json_pack("{s:s,s:i,s:f,s:f}", "side", bench_side_name(side), "clients",
                          (int)client_counts[i], "per_second", rate, "ratio", rate / bare));
        }
    }
    (void)json_array_append_new(json_object_get(args->answer, "load"),
        json_pack("{s:s,s:o}", "language", subject->language, "sides", rows));
    return r;
}

static int bench_all(struct bench_args *args)
{
    args->cancel_fd = cli_catch_signals();
    args->answer = json_pack("{s:[],s:[]}", "start", "load");
    int r = bench_open(&args->bench, &args->languages, &args->err);
    for (size_t i = 0; r == 0 && i < args->bench.count; i++)
        r = measure(args, args->bench.subjects[i]);
    for (size_t i = 0; r == 0 && !args->no_load && i < args->bench.count && i < 1; i++)
        r = measure_load(args, args->bench.subjects[i]);
    int status = r == -EINTR ? 128 + SIGINT : r < 0 ? cli_fail("bench", &args->err) : 0;
    if (r == 0 && args->json)
        output_json(json_incref(args->answer), JSON_REAL_PRECISION(5));
    bench_close(&args->bench);
    json_decref(args->answer);
    if (args->cancel_fd >= 0)
        (void)close(args->cancel_fd);
    return status;
}

int cmd_bench(int argc, char **argv)
{
    struct bench_args args = {
        .rounds = ROUNDS, .bench = {.dirs = cli_dirs(), .spawner_path = cli_spawner_path()}};
    options_parse(&bench_options, argc, argv, take_option, &args);
    int status = bench_all(&args);
    strv_done(&args.languages);
    return status;
}
