/* SPDX-License-Identifier: Apache-2.0 */

/* Opens and closes an engine. Opening registers with the spawner a root for each stage of every
 * available runtime and the zygotes and pools, and seals the table. */

#include "run/engine.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/log.h"
#include "base/str.h"
#include "run/engine_state.h"
#include "run/package.h"
#include "run/plan.h"
#include "run/stage.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const struct spawn_reply *engine_report(const struct engine *engine)
{
    return &engine->spawner.seal;
}

const struct run_limits *engine_maxima(const struct engine *engine)
{
    return &engine->maxima;
}

/* Registers entries, unless the same root is registered already; returns its index. Takes
 * entries. */
static int register_root(struct engine *e, struct root_entries *entries, struct err *err)
{
    for (size_t i = 0; i < e->registered_count; i++) {
        const struct root_entries *other = &e->registered[i];
        if (other->count == entries->count &&
            memcmp(other->items, entries->items, entries->count * sizeof(*entries->items)) ==
                0) {
            root_entries_done(entries);
            return (int)i;
        }
    }
    if (e->registered_count == SPAWN_MAX_ROOTS) {
        root_entries_done(entries);
        return err_set(err, ERR_INTERNAL, E2BIG, "more than %d roots", SPAWN_MAX_ROOTS);
    }
    int r = spawner_add_root(&e->spawner, entries->items, entries->count, err);
    e->registered[e->registered_count] = *entries;
    e->registered_count++;
    return r < 0 ? r : (int)e->registered_count - 1;
}

/* One language that cannot be set up does not take the others with it. */
static void give_up(struct runtime *rt, const struct err *err)
{
    rt->available = false;
    free(rt->missing);
    rt->missing = xasprintf("%s cannot be set up: %s", rt->name, err->message);
}

/* Returns 0 also when the language has become unavailable; err then says why. */
static int register_stage(struct engine *e, const struct engine_options *options,
    struct runtime *rt, bool compile, int roots[ROOT_KINDS], struct err *err)
{
    struct root_entries entries;
    root_entries_init(&entries);
    char *name = xasprintf("%s-%s", rt->name, compile ? "compile" : "run");
    int r = root_describe(
        compile ? &rt->compile_root : &rt->run_root, name, options->state_dir, &entries, err);
    free(name);
    if (r < 0) {
        give_up(rt, err);
        (void)err_wrap(err, r, "runtime %s", rt->name);
        return 0;
    }
    if (options->host_roots) {
        struct root_spec spec = {
            .whole_host = true, .execs = compile ? rt->compile_root.execs : rt->run_root.execs};
        struct root_entries whole;
        root_entries_init(&whole);
        if ((r = root_describe(&spec, "host", options->state_dir, &whole, err)) < 0 ||
            (r = register_root(e, &whole, err)) < 0)
            return r;
        roots[compile ? ROOT_HOST_COMPILE : ROOT_HOST_RUN] = r;
    }
    if ((r = register_root(e, &entries, err)) < 0)
        return r;
    roots[compile ? ROOT_COMPILE : ROOT_RUN] = r;
    return 0;
}

static int register_all(struct engine *e, const struct engine_options *options, struct err *err)
{
    for (size_t i = 0; i < options->source_count; i++) {
        int r = spawner_add_source(
            &e->spawner, options->sources[i].path, options->sources[i].writable, err);
        if (r < 0)
            return r;
    }
    e->roots = xcalloc(e->runtimes->count, sizeof(*e->roots));
    e->warm_base_kb = xcalloc(e->runtimes->count, sizeof(*e->warm_base_kb));
    size_t usable = 0;
    size_t given_up = 0;
    for (size_t i = 0; i < e->runtimes->count; i++) {
        struct runtime *rt = &options->runtimes->items[i];
        for (size_t k = 0; k < ROOT_KINDS; k++)
            e->roots[i][k] = -1;
        if (!rt->available)
            continue;
        int r = 0;
        if (rt->compiled)
            r = register_stage(e, options, rt, true, e->roots[i], err);
        if (r == 0 && rt->available)
            r = register_stage(e, options, rt, false, e->roots[i], err);
        if (r < 0)
            return r;
        usable += rt->available;
        given_up += !rt->available;
    }
    /* The cause is not a language when none is left; err has the last reason. */
    return usable == 0 && given_up > 0 ? -EIO : 0;
}

/* Whether the files of Hermes that a warm start needs (/usr/lib/hermes/ in the box) were
 * built. */
static bool has_warm_parts(const struct root_spec *root)
{
    for (size_t i = 0; i < root->path_count; i++) {
        const struct root_path *path = &root->paths[i];
        if (path->box && str_has_prefix(path->box, "/usr/lib/hermes/") &&
            access(path->host, R_OK) < 0)
            return false;
    }
    return true;
}

/* Registers the pool of a stage whose program is started ahead. */
static int register_pool(
    struct engine *e, size_t index, bool compile, unsigned max, struct err *err)
{
    const struct runtime *rt = &e->runtimes->items[index];
    const struct stage_def *def = compile ? &rt->compile : &rt->run;
    const struct root_spec *root_spec = compile ? &rt->compile_root : &rt->run_root;
    int root = e->roots[index][compile ? ROOT_COMPILE : ROOT_RUN];
    if (!rt->available || !def->park.max || !max || root < 0 || !has_warm_parts(root_spec))
        return 0;
    struct spawn_pool pool = {.kind = SPAWN_POOL,
        .root = (uint32_t)root,
        .exec = (uint32_t)def->park.exec,
        .min = def->park.min < max ? def->park.min : max,
        .max = def->park.max < max ? def->park.max : max,
        .base_bytes = (uint64_t)def->park.base_mb << 20};
    struct run_limits limits = {0};
    CLEANUP(strv_done) struct strv argv = {0};
    CLEANUP(strv_done) struct strv env = {0};
    cleanup_close int job = -1;
    limits_fill(&limits, compile ? &rt->compile_limits : &rt->limits);
    limits_cap(&limits, &e->maxima);
    limits_to_spawn(&limits, &pool.limits);
    plan_parked(rt, def, &limits, &argv, &env);
    const struct job_spec spec = {.argv = &argv, .env = &env};
    int r = job_write(&spec, &job, err);
    return r < 0 ? r : spawner_add_pool(&e->spawner, &pool, job, err);
}

void engine_session_limits(const struct run_limits *from, struct spawn_limits *to)
{
    limits_to_spawn(from, to);
    to->cpu_s = 1;
}

uint32_t engine_session_flags(const struct runtime *rt)
{
    return BOX_CHANNEL | (rt->run.session_forks ? BOX_FORKS : 0);
}

/* Registers a zygote of a runtime: one for programs, or one for sessions. It is started like a
 * program without arguments. */
static int register_zygote(struct engine *e, size_t index, const struct engine_options *options,
    bool is_session, struct err *err)
{
    const struct runtime *rt = &e->runtimes->items[index];
    const struct strv *warm = is_session ? &rt->run.session_warm : &rt->run.warm;
    struct spawn_zygote zygote = {.kind = SPAWN_ZYGOTE,
        .park = is_session ? options->session_park : options->park,
        .flags = is_session ? engine_session_flags(rt) : 0,
        .on_demand = is_session && !options->session_warm};
    if (!rt->available || !warm->count || e->roots[index][ROOT_RUN] < 0 ||
        !has_warm_parts(&rt->run_root))
        return 0;
    struct run_limits limits = {0};
    CLEANUP(strv_done) struct strv argv = {0};
    CLEANUP(strv_done) struct strv env = {0};
    cleanup_close int job = -1;
    limits_fill(&limits, &rt->limits);
    limits_cap(&limits, &e->maxima);
    if (is_session)
        engine_session_limits(&limits, &zygote.limits);
    else
        limits_to_spawn(&limits, &zygote.limits);
    zygote.root = (uint32_t)e->roots[index][ROOT_RUN];
    strv_add(&argv, rt->run_root.execs.items[0]);
    strv_add_all(&argv, warm);
    plan_environment(&rt->run, &limits, &env);
    const struct job_spec spec = {.argv = &argv, .env = &env};
    int r = job_write(&spec, &job, err);
    return r < 0 ? r : spawner_add_zygote(&e->spawner, &zygote, job, err);
}

/* Without a cache everything works, only slower. */
void engine_open_cache(struct engine *e, const struct engine_options *options)
{
    const struct cache_settings *settings = &options->cache;
    struct err err = {0};
    bool compiles = false;

    for (size_t i = 0; i < e->runtimes->count; i++)
        compiles =
            compiles || (e->runtimes->items[i].compiled && e->runtimes->items[i].available);
    e->cache_shared = settings->shared;
    if (compiles && settings->max_bytes > 0 &&
        cache_open(&e->cache, settings, options->state_dir, &err) < 0)
        log_event(LOG_WARN, "there is no compile cache", "reason", err.message, (char *)NULL);
}

int engine_start(struct engine **ret, const struct engine_options *options, struct err *err)
{
    struct engine *e = xcalloc(1, sizeof(*e));
    e->maxima = options->maxima;
    struct spawn_setup setup = {.kind = SPAWN_SETUP,
        .protocol = SPAWN_PROTOCOL,
        .flags = (options->allow_controls ? SETUP_ALLOW_CONTROLS : 0u) |
                 (options->share_networks ? SETUP_SHARE_NETWORKS : 0u),
        .min_level = options->min_level,
        .networks = options->networks,
        .park_free_percent = options->park_free_percent,
        .processes_total = options->processes_total};
    limits_to_spawn(&options->maxima, &setup.max);
    int r = options->control_fd > 0
                ? spawner_adopt(&e->spawner, options->control_fd, &setup, err)
                : spawner_start(&e->spawner, &setup, err);
    if (r < 0) {
        engine_close(e);
        return r;
    }
    if (!options->networks) /* a single run: this program and the spawner work in parallel */
        spawner_send_away(&e->spawner);
    *ret = e;
    return 0;
}

static int engine_fill(struct engine *e, const struct engine_options *options, struct err *err)
{
    e->runtimes = options->runtimes;
    e->source_count = options->source_count;
    int r = register_all(e, options, err);
    for (size_t i = 0; r == 0 && options->zygotes && i < e->runtimes->count; i++) {
        r = register_zygote(e, i, options, false, err);
        if (r == 0)
            r = register_zygote(e, i, options, true, err);
        if (r == 0)
            r = register_pool(e, i, true, options->park, err);
        if (r == 0)
            r = register_pool(e, i, false, options->park, err);
    }
    if (r == 0)
        engine_open_cache(e, options);
    return r;
}

int engine_register(struct engine *e, const struct engine_options *options, struct err *err)
{
    int r = engine_fill(e, options, err);
    if (r == 0 && !options->networks) /* otherwise a helper of the spawner makes them */
        r = spawner_add_network(&e->spawner, err);
    return r < 0 ? r : spawner_seal(&e->spawner, err);
}

int engine_open(struct engine **ret, const struct engine_options *options, struct err *err)
{
    struct engine *e;
    int r = engine_start(&e, options, err);
    if (r < 0)
        return r;
    if ((r = engine_fill(e, options, err)) < 0 || (r = spawner_seal(&e->spawner, err)) < 0 ||
        (r = spawner_ready(&e->spawner, err)) < 0) {
        engine_close(e);
        return r;
    }
    *ret = e;
    return 0;
}

void engine_close(struct engine *engine)
{
    if (engine)
        spawner_stop(&engine->spawner);
    engine_leave(engine);
}

void engine_leave(struct engine *engine)
{
    if (!engine)
        return;
    spawner_leave(&engine->spawner);
    for (size_t i = 0; i < engine->registered_count; i++)
        root_entries_done(&engine->registered[i]);
    cache_close(engine->cache);
    free(engine->roots);
    free(engine->warm_base_kb);
    free(engine);
}
