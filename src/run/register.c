/* SPDX-License-Identifier: Apache-2.0 */

/* Opens and closes an engine. Opening registers with the spawner a root for each stage of every
 * available runtime and the zygotes and pools, and seals the table. */

#include "run/engine.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/log.h"
#include "base/os/process.h"
#include "base/str.h"
#include "network/egress.h"
#include "network/entry.h"
#include "run/engine_state.h"
#include "run/image_root.h"
#include "run/package.h"
#include "run/plan.h"
#include "run/stage/stage.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { EGRESS_STOP_MS = 1000 };

const struct spawn_reply *engine_report(const struct engine *engine)
{
    return &engine->spawner.seal;
}

int engine_network_check(const struct engine *engine, unsigned mode, struct err *err)
{
    const char *missing;
    if (spawner_network_modes(&engine->spawner.seal, &missing) & 1u << mode)
        return 0;
    return err_set(err, ERR_UNSUPPORTED, EOPNOTSUPP,
        "network: this host cannot enforce `%s`: %s; `hermes doctor` tells more",
        network_mode_name(mode), missing);
}

bool engine_has_images(const struct engine *engine)
{
    return engine->has_images;
}

const char *engine_image_text(const struct engine *engine)
{
    return engine->image_text ? engine->image_text : "";
}

bool engine_image_is_warm(const struct engine *engine, const struct run_image *image)
{
    return image_roots_has_warm(engine->images, image);
}

unsigned engine_incoming(const struct engine *engine)
{
    return (unsigned)engine->source_count - 1;
}

bool engine_has_seeds(const struct engine *engine)
{
    return engine->has_seeds;
}

unsigned engine_seed_source(const struct engine *engine)
{
    return engine->seed_source;
}

const char *engine_seed_place(const struct engine *engine, const struct runtime *rt)
{
    return engine->seeds[rt - engine->runtimes->items].place.path;
}

bool engine_seed_is_needed(const struct engine *engine, const struct runtime *rt)
{
    return engine->seeds[rt - engine->runtimes->items].is_needed;
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

/* If one language cannot be set up, the others still work. */
static void give_up(struct runtime *rt, const struct err *err)
{
    rt->available = false;
    free(rt->missing);
    rt->missing = xasprintf("%s cannot be set up: %s", rt->name, err->message);
}

/* Shows the seed's place to the boxes of a stage. Without one, compilers are slower. */
static int add_seed(struct engine *e, const struct engine_options *options,
    const struct runtime *rt, bool compile, struct root_entries *entries)
{
    struct seed_place *place = &e->seeds[rt - e->runtimes->items].place;
    if (!rt->compile.seed.recipe || !(compile || rt->compile.seed.in_run))
        return 0;
    if (compile)
        (void)seed_place_open(rt, entries, options->dirs.seeds, place);
    return place->path ? seed_place_add(place, entries) : 0;
}

/* The root of sessions is that of runs, unless its sessions can be copied (proto/spawn.h). */
static int register_session_root(struct engine *e, const struct engine_options *options,
    const struct runtime *rt, const char *name, int roots[ROOT_KINDS], struct err *err)
{
    struct root_entries entries;
    roots[ROOT_SESSION] = roots[ROOT_RUN];
    if (!options->sessions || !rt->run.session_forks)
        return 0;
    root_entries_init(&entries);
    int r = root_describe(&rt->run_root, name, &options->dirs, &e->walks, &entries, err);
    if (r < 0)
        return r;
    entries.items[0].flags |= ENTRY_IN_MEMORY;
    if ((r = register_root(e, &entries, err)) < 0)
        return r;
    roots[ROOT_SESSION] = r;
    return 0;
}

/* The root that is laid over an image's whole root: the files of Hermes. It has the programs
 * of ordinary boxes, with the same numbers, then the other places of the interpreter. */
static struct root_spec skeleton_of(const struct runtime *rt)
{
    static char *links[] = {(char *)"/run=/tmp", (char *)"/var/tmp=/tmp"};
    const struct root_spec *run = &rt->run_root;
    struct root_spec spec = {.is_skeleton = true,
        .keeps_etc = rt->is_internal,
        .links = {.items = links, .count = 2}};
    spec.paths = xcalloc(run->path_count + 1, sizeof(*spec.paths));
    for (size_t i = 0; i < run->path_count; i++) {
        const struct root_path *path = &run->paths[i];
        if (path->copy && path->box && str_has_prefix(path->box, "/usr/lib/hermes/"))
            spec.paths[spec.path_count++] = *path;
    }
    strv_add_all(&spec.execs, &run->execs);
    strv_add_all(&spec.execs, &rt->run.image_programs);
    return spec;
}

static int register_whole(struct engine *e, const struct engine_options *options,
    const struct runtime *rt, int roots[ROOT_KINDS], struct err *err)
{
    struct root_entries entries;
    if (!options->layers || !rt->run.image_programs.count)
        return 0;
    root_entries_init(&entries);
    cleanup_free char *name = xasprintf("%s-whole", rt->name);
    struct root_spec spec = skeleton_of(rt);
    int r = root_describe(&spec, name, &options->dirs, &e->walks, &entries, err);
    free(spec.paths);
    strv_done(&spec.execs);
    if (r < 0)
        return r;
    entries.items[0].flags |= ENTRY_IN_MEMORY;
    if ((r = register_root(e, &entries, err)) >= 0)
        roots[ROOT_WHOLE] = r;
    return r < 0 ? r : 0;
}

/* Returns 0 also when the language has become unavailable; err then says why. */
static int register_stage(struct engine *e, const struct engine_options *options,
    struct runtime *rt, bool compile, int roots[ROOT_KINDS], struct err *err)
{
    struct root_entries entries;
    root_entries_init(&entries);
    cleanup_free char *name = xasprintf("%s-%s", rt->name, compile ? "compile" : "run");
    int r = root_describe(compile ? &rt->compile_root : &rt->run_root, name, &options->dirs,
        &e->walks, &entries, err);
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
        if ((r = root_describe(&spec, "host", &options->dirs, &e->walks, &whole, err)) < 0 ||
            (r = register_root(e, &whole, err)) < 0)
            return r;
        roots[compile ? ROOT_HOST_COMPILE : ROOT_HOST_RUN] = r;
    }
    if ((r = add_seed(e, options, rt, compile, &entries)) < 0)
        return err_set(err, ERR_INTERNAL, -r, "the seed of %s: %s", rt->name, strerror(-r));
    if ((r = register_root(e, &entries, err)) < 0)
        return r;
    roots[compile ? ROOT_COMPILE : ROOT_RUN] = r;
    if (!compile && (r = register_whole(e, options, rt, roots, err)) < 0)
        return r;
    return compile ? 0 : register_session_root(e, options, rt, name, roots, err);
}

static int register_all(struct engine *e, const struct engine_options *options, struct err *err)
{
    for (size_t i = 0; i < options->source_count; i++) {
        int r = spawner_add_source(&e->spawner, options->sources[i].path,
            options->sources[i].writable ? SOURCE_WRITABLE : SOURCE_READ_ONLY, err);
        if (r < 0)
            return r;
    }
    e->has_seeds = options->seed_incoming;
    if (e->has_seeds) {
        e->seed_source = (unsigned)e->source_count++;
        int r = spawner_add_source(&e->spawner, options->seed_incoming, SOURCE_TRY, err);
        if (r < 0)
            return r;
    }
    e->has_images = options->layers;
    if (e->has_images) {
        e->source_count++; /* requests may name the first one */
        int r = spawner_add_source(&e->spawner, options->incoming, SOURCE_TRY, err);
        if (r == 0)
            r = spawner_add_source(&e->spawner, options->layers, SOURCE_LAYERS, err);
        if (r == 0 && options->operator_layers)
            r = spawner_add_source(&e->spawner, options->operator_layers, SOURCE_LAYERS, err);
        if (r < 0)
            return r;
    }
    e->roots = xcalloc(e->runtimes->count, sizeof(*e->roots));
    e->warm_base_kb = xcalloc(e->runtimes->count, sizeof(*e->warm_base_kb));
    e->seeds = xcalloc(e->runtimes->count, sizeof(*e->seeds));
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
    cleanup_close int package = -1;
    limits_fill(&limits, compile ? &rt->compile_limits : &rt->limits);
    limits_cap(&limits, &e->maxima);
    limits_to_spawn(&limits, &pool.limits);
    plan_parked(rt, def, &limits, &argv, &env);
    const struct package_spec spec = {.argv = &argv, .env = &env};
    int r = package_write(&spec, &package, err);
    return r < 0 ? r : spawner_add_pool(&e->spawner, &pool, package, err);
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

/* A zygote is started like a program without arguments. */
int engine_register_zygote(struct engine *e, size_t index, const struct engine_options *options,
    bool is_session, const struct engine_image *image, int root, struct err *err)
{
    const struct runtime *rt = &e->runtimes->items[index];
    const struct strv *warm = is_session ? &rt->run.session_warm : &rt->run.warm;
    struct spawn_zygote zygote = {.kind = SPAWN_ZYGOTE,
        .park = is_session ? options->session_park : options->park,
        .flags = is_session ? engine_session_flags(rt) : 0,
        .on_demand = is_session && !options->session_warm};
    if (image) {
        zygote.on_demand = !(is_session && image->is_default && options->session_warm);
        zygote.idle_s = options->image_idle_s;
    }
    if (!rt->available || !warm->count || root < 0 || !has_warm_parts(&rt->run_root))
        return 0;
    struct run_limits limits = {0};
    CLEANUP(strv_done) struct strv argv = {0};
    CLEANUP(strv_done) struct strv env = {0};
    cleanup_close int package = -1;
    limits_fill(&limits, &rt->limits);
    limits_cap(&limits, &e->maxima);
    if (is_session)
        engine_session_limits(&limits, &zygote.limits);
    else
        limits_to_spawn(&limits, &zygote.limits);
    zygote.root = (uint32_t)root;
    strv_add(&argv, rt->run_root.execs.items[0]);
    strv_add_all(&argv, warm);
    plan_environment(&rt->run, &limits, &env);
    if (image)
        engine_zygote_words(image, &argv, &env);
    const struct package_spec spec = {.argv = &argv, .env = &env};
    int r = package_write(&spec, &package, err);
    return r < 0 ? r : spawner_add_zygote(&e->spawner, &zygote, package, err);
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
        cache_open(&e->cache, settings, options->dirs.state, &err) < 0)
        log_event(LOG_WARN, "there is no compile cache", "reason", err.message, (char *)NULL);
}

int engine_start(struct engine **ret, const struct engine_options *options, struct err *err)
{
    struct engine *e = xcalloc(1, sizeof(*e));
    e->maxima = options->maxima;
    network_hub_init(&e->network);
    e->images = image_roots_new();
    e->egress_pid = -1;
    e->egress_fd = options->egress_fd > 0 ? options->egress_fd : -1;
    struct spawn_setup setup = {.kind = SPAWN_SETUP,
        .protocol = SPAWN_PROTOCOL,
        .flags = (options->allow_controls ? SETUP_ALLOW_CONTROLS : 0u) |
                 (options->share_networks ? SETUP_SHARE_NETWORKS : 0u),
        .min_level = options->min_level,
        .networks = options->networks,
        .park_free_percent = options->park_free_percent,
        .processes_total = options->processes_total};
    struct run_limits largest = options->maxima;
    limits_raise(&largest, &options->build_maxima);
    limits_to_spawn(&largest, &setup.max);
    int r = options->control_fd > 0
                ? spawner_adopt(&e->spawner, options->control_fd, &setup, err)
                : spawner_start(&e->spawner, options->spawner_path, &setup, err);
    if (r == 0 && options->network) /* before spawner_ready() moves us into an empty network */
        r = e->egress_fd = egress_start(options->network, &e->egress_pid, err);
    if (r < 0) {
        engine_close(e);
        return r;
    }
    if (!options->networks) /* a single run: this program and the spawner work in parallel */
        spawner_send_away(&e->spawner);
    *ret = e;
    return 0;
}

static int add_egress(struct engine *e, struct err *err)
{
    int r = spawner_add_egress(&e->spawner, e->egress_fd, err);
    close_fd(&e->egress_fd);
    return r;
}

static int engine_fill(struct engine *e, const struct engine_options *options, struct err *err)
{
    e->runtimes = options->runtimes;
    e->source_count = options->source_count;
    int r = register_all(e, options, err);
    root_walks_done(&e->walks);
    if (r == 0 && e->egress_fd >= 0)
        r = add_egress(e, err);
    for (size_t i = 0; r == 0 && options->zygotes && i < e->runtimes->count; i++) {
        r = engine_register_zygote(e, i, options, false, NULL, e->roots[i][ROOT_RUN], err);
        if (r == 0)
            r = engine_register_zygote(
                e, i, options, true, NULL, e->roots[i][ROOT_SESSION], err);
        if (r == 0)
            r = register_pool(e, i, true, options->park, err);
        if (r == 0)
            r = register_pool(e, i, false, options->park, err);
    }
    for (size_t i = 0; r == 0 && i < options->image_count; i++)
        r = engine_register_image(e, options, &options->images[i], err);
    e->image_text = options->image_text ? xstrdup(options->image_text) : NULL;
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
    if (engine) {
        close_fd(&engine->egress_fd);
        spawner_stop(&engine->spawner);
        if (engine->egress_pid > 0) /* its socket went with the spawner */
            process_await(engine->egress_pid, EGRESS_STOP_MS);
    }
    engine_leave(engine);
}

void engine_leave(struct engine *engine)
{
    if (!engine)
        return;
    image_roots_free(engine->images);
    spawner_leave(&engine->spawner);
    network_hub_done(&engine->network);
    close_fd(&engine->egress_fd);
    for (size_t i = 0; i < engine->registered_count; i++)
        root_entries_done(&engine->registered[i]);
    cache_close(engine->cache);
    for (size_t i = 0; engine->seeds && i < engine->runtimes->count; i++)
        seed_place_done(&engine->seeds[i].place);
    free(engine->seeds);
    free(engine->roots);
    free(engine->image_text);
    free(engine->warm_base_kb);
    free(engine);
}
