/* SPDX-License-Identifier: Apache-2.0 */

/* hermes seed: makes the seeds of languages now. A server makes them by itself, later. */

#include "cli/cli.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"
#include "cli/options.h"
#include "cli/output.h"
#include "image/seed_build.h"
#include "lang/seed.h"
#include "run/encode.h"

#include <errno.h>
#include <jansson.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { WAIT_MS = 200 }; /* between two looks whether another program has made its seed */

static const struct option_row rows[] = {
    {"json", 'j', NULL, "print the list, or the error, as JSON"},
    {0},
};

const struct option_table seed_options = {
    .summary = "make seeds now, so that compilers are fast from the first run",
    .command = "hermes seed",
    .operands = "[LANGUAGE...]",
    .rows = rows,
    .before =
        "Makes the seeds of all languages, or of those that are named: precompiled headers "
        "of C++, class archives of Java, the compiled standard library of Go. Seeds that "
        "are there already stay. `hermes serve` makes them by itself when nothing runs; "
        "this command is for installers, and for `hermes run` without a server.",
    .after =
        "Variables: HERMES_SEED_DIR (where seeds are kept; /var/cache/hermes as root, else "
        "$XDG_CACHE_HOME/hermes).\n\n"
        "Exit status: 0; 2 wrong usage, no such language, or a recipe that failed; 125 when "
        "Hermes itself failed.\n\n"
        "Examples:\n"
        "  hermes seed\n"
        "  hermes seed cpp go",
};

struct seed_args {
    struct strv names;
    bool json;
};

static void take_option(void *to, int key, char *arg)
{
    struct seed_args *args = to;
    if (key == 'j')
        args->json = true;
    else
        strv_add(&args->names, arg);
}

static int check_names(
    const struct seed_args *args, const struct runtime_registry *all, struct err *err)
{
    for (size_t i = 0; i < args->names.count; i++) {
        const struct runtime *rt = runtime_find(all, args->names.items[i]);
        if (!rt)
            return err_field(err, "language",
                "unknown language `%s`; `hermes runtimes` lists all", args->names.items[i]);
        if (!rt->compile.seed.recipe)
            return err_field(err, "language", "%s has no seed", rt->name);
        if (!rt->available)
            return err_set(err, ERR_UNAVAILABLE, ENOENT, "%s", rt->missing);
    }
    return 0;
}

/* Leaves only languages whose seeds are to be made; the others need no roots. */
static size_t keep_wanted(const struct seed_args *args, struct runtime_registry *all)
{
    size_t count = 0;
    for (size_t i = 0; i < all->count; i++) {
        struct runtime *rt = &all->items[i];
        bool is_named = args->names.count == 0;
        for (size_t k = 0; k < args->names.count; k++)
            is_named = is_named || runtime_find(all, args->names.items[k]) == rt;
        rt->available = rt->available && rt->compile.seed.recipe && is_named;
        count += rt->available;
    }
    return count;
}

static int open_engine(const struct lang_dirs *dirs, const char *incoming,
    struct runtime_registry *runtimes, struct engine **ret, struct err *err)
{
    struct engine_options options = {.runtimes = runtimes,
        .dirs = *dirs,
        .spawner_path = cli_spawner_path(),
        .min_level = LEVEL_STRONG,
        .seed_incoming = incoming};
    limits_maxima(&options.maxima);
    for (size_t i = 0; i < runtimes->count; i++) {
        const struct run_limits limits = seed_limits(&runtimes->items[i]);
        if (runtimes->items[i].available)
            limits_raise(&options.build_maxima, &limits);
    }
    return engine_open(ret, &options, err);
}

/* A server may be making a seed; then this waits for its end. */
static int make_one(const struct seed_builder *b, const struct runtime *rt, struct err *err)
{
    int r;
    *err = (struct err){0};
    while ((r = seed_build(b, rt, err)) < 0 && err->code == ERR_BUSY) {
        struct pollfd cancel = {.fd = b->cancel_fd, .events = POLLIN};
        if (poll(&cancel, 1, WAIT_MS) > 0)
            return r;
        *err = (struct err){0};
    }
    return r;
}

static int make_all(const struct seed_builder *b, const struct runtime_registry *runtimes,
    bool json, struct err *err)
{
    json_t *list = json_array();
    int r = 0;
    for (size_t i = 0; r == 0 && i < runtimes->count; i++) {
        const struct runtime *rt = &runtimes->items[i];
        if (!rt->available)
            continue;
        const char *place = engine_seed_place(b->engine, rt);
        bool was_ready = place && seed_is_ready(place);
        uint64_t start_ms = clock_ms();
        if (!json && !was_ready)
            (void)fprintf(stderr, "making the seed of %s\n", rt->name);
        r = make_one(b, rt, err);
        if (r == 0 && !json)
            (void)printf("%-11s %s\n", rt->name, was_ready ? "ready already" : "ready");
        if (r == 0)
            (void)json_array_append_new(
                list, json_pack("{s:s, s:b, s:I}", "language", rt->name, "made", !was_ready,
                          "ms", (json_int_t)(was_ready ? 0 : clock_ms() - start_ms)));
    }
    if (r == 0 && json)
        output_json(json_pack("{s:O}", "seeds", list), RESULT_JSON_FLAGS);
    json_decref(list);
    return r;
}

static int make(const struct seed_args *args, struct err *err)
{
    struct lang_dirs dirs = cli_dirs();
    CLEANUP(runtime_registry_done) struct runtime_registry runtimes = {0};
    cleanup_free char *dir = NULL;
    struct engine *engine = NULL;
    int r = runtime_load(&runtimes, &dirs, NULL, err);
    if (r == 0)
        r = check_names(args, &runtimes, err);
    if (r == 0)
        r = seeds_open(dirs.seeds, SEED_KEEP_OWNER, getegid(), &dir, err);
    if (r < 0)
        return r;
    if (!keep_wanted(args, &runtimes)) {
        (void)fprintf(stderr, "no installed language has a seed\n");
        return 0;
    }
    cleanup_free char *incoming = xasprintf("%s/" SEED_INCOMING, dir);
    const int cancel_fd = cli_catch_signals();
    r = open_engine(&dirs, incoming, &runtimes, &engine, err);
    if (r < 0)
        return r;
    const struct seed_builder builder = {.engine = engine, .dir = dir, .cancel_fd = cancel_fd};
    r = make_all(&builder, &runtimes, args->json, err);
    engine_close(engine);
    return r;
}

int cmd_seed(int argc, char **argv)
{
    struct seed_args args = {0};
    struct err err = {0};
    options_parse(&seed_options, argc, argv, take_option, &args);
    int r = make(&args, &err);
    strv_done(&args.names);
    return output_end(seed_options.command, r < 0 ? cli_fail("seed", &err) : 0);
}
