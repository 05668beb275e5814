/* SPDX-License-Identifier: Apache-2.0 */

/* See engine.h. A run is: compile box if the language has one, then run box. Only named plain
 * files move between the two boxes, as bytes. run/register.c has the steps before the first
 * run. */

#include "run/engine.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"
#include "run/engine_state.h"
#include "run/hint.h"
#include "run/image_root.h"
#include "run/stage/stage.h"
#include "run/warmth.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    COLLECT_MAX_FILES = 256,      /* files that one run returns */
    COLLECT_MAX_BYTES = 16 << 20, /* bytes of them */
    ARTEFACT_MAX_FILES = 4000,    /* files from the compile box to the run box */
};

static const struct run_watch no_watch = {.cancel_fd = -1};

/* The state of one run. */
struct running {
    struct engine *engine;
    const struct run_spec *spec;
    const struct run_watch *watch;
    const struct runtime *runtime;
    const int *roots;
    const struct run_plan *plan;
    struct collect_reader artefacts;
    struct run_result *result;
    const struct run_variant *variant;
    bool is_program; /* belongs to an engine_program and is run many times */
    int package_fd;  /* its package, or -1 */
};

static unsigned pick_root(const struct running *run, bool compile)
{
    bool host = run->watch->host_root;
    int kind = compile ? host ? ROOT_HOST_COMPILE : ROOT_COMPILE
               : host  ? ROOT_HOST_RUN
                       : ROOT_RUN;
    return (unsigned)run->roots[kind];
}

/* A compilation that failed or was stopped decides the run. `compiler` is a path. */
static void conclude_compile(struct run_result *result, const char *compiler)
{
    const struct stage_result *compile = &result->compile;
    struct stage_result *run = &result->run;
    const size_t size = sizeof(run->message);
    const char *slash = strrchr(compiler, '/');
    const char *name = slash ? slash + 1 : compiler;
    bool cancelled = compile->status == RUN_CANCELLED;
    run->status = cancelled ? RUN_CANCELLED : RUN_COMPILE_ERROR;
    if (compile->status == RUN_OK)
        (void)snprintf(run->message, size, "compilation failed (%.64s made no program)", name);
    else if (compile->status == RUN_RUNTIME_ERROR && compile->exited)
        (void)snprintf(run->message, size, "compilation failed (%.64s exited with status %d)",
            name, compile->exit_code);
    else if (compile->status == RUN_SIGNALED)
        (void)snprintf(run->message, size, "compilation failed (%.64s was killed by %s)", name,
            run_signal_name(compile->signal));
    else
        (void)snprintf(run->message, size, "compilation %s: %.200s",
            cancelled ? "cancelled" : "failed",
            compile->message[0] ? compile->message : run_status_name(compile->status));
}

static bool made_program(const struct running *run)
{
    const struct run_files *made = &run->artefacts.files;
    const char *program = run->plan->compile.program;
    return made->count > 0 && (!program || run_files_find(made, program));
}

static bool is_asked(const struct strv *asked, const char *variable)
{
    size_t len = strcspn(variable, "=") + 1;
    for (size_t i = 0; asked && i < asked->count; i++) {
        if (strncmp(asked->items[i], variable, len) == 0)
            return true;
    }
    return false;
}

/* Whether a box with the toolchain has the seed of its language. If so, the variables of the
 * seed join those of the stage in *own, except those that the request has set. If not, the seed
 * is needed from now on. Nothing of this is part of a key of the compile cache: the result is
 * the same. */
static bool use_seed(const struct running *run, const struct run_stage *stage,
    const struct strv *asked, struct strv *own)
{
    const struct seed_def *def = &run->runtime->compile.seed;
    struct engine_seed *seed = &run->engine->seeds[run->runtime - run->engine->runtimes->items];
    if (!seed->place.path || run->watch->host_root)
        return false;
    if (!seed_is_ready(seed->place.path)) {
        seed->is_needed = true;
        return false;
    }
    strv_add_all(own, &stage->env);
    for (size_t i = 0; i < def->env.count; i++) {
        if (!is_asked(asked, def->env.items[i]))
            plan_set_env(own, def->env.items[i]);
    }
    return true;
}

/* A tool of ours in a whole root builds upon it. */
static bool is_root(const struct running *run)
{
    return run->runtime->is_internal && run->spec->image && run->spec->image->is_whole;
}

/* Takes the root of the image, if there is one, for as long as the box lives. *ret_number is
 * the root of the box. */
static int take_root(const struct running *run, bool compile, unsigned *ret_number,
    struct image_root **ret, struct err *err)
{
    const struct run_spec *spec = run->spec;
    int r = 0;
    *ret = NULL;
    *ret_number = pick_root(run, compile);
    if (spec->image)
        r = image_root_take(run->engine,
            &(struct image_use){.image = spec->image,
                .runtime = run->runtime,
                .base = *ret_number,
                .owner = spec->owner,
                .is_top = is_root(run)},
            ret, err);
    if (*ret)
        *ret_number = image_root_number(*ret);
    return r;
}

static int compile_at(struct running *run, unsigned root_number, struct err *err)
{
    const struct run_stage *stage = &run->plan->compile;
    CLEANUP(strv_done) struct strv seeded_env = {0};
    run->result->compile_seeded = use_seed(run, stage, NULL, &seeded_env);
    struct run_watch quiet = {.cancel_fd = run->watch->cancel_fd, .purse = run->watch->purse};
    struct stage_spec spec = {
        .package = {.argv = &stage->argv,
            .env = run->result->compile_seeded ? &seeded_env : &stage->env,
            .globs = &stage->artefacts,
            .files = {&run->spec->files, &stage->files},
            .collect_max_files = ARTEFACT_MAX_FILES,
            .collect_max_bytes = stage->limits.disk_mb << 20},
        .root = root_number,
        .exec = (unsigned)stage->exec,
        .exec_path = run->runtime->compile_root.execs.items[stage->exec],
        .cold_reason = warmth_problem(&(struct warmth_question){
            .def = &run->runtime->compile, .stage = stage, .has_image = run->spec->image}),
        .owner = run->spec->owner,
        .limits = stage->limits,
        .stdin_fd = -1,
        .package_fd = -1,
        .box_stdin_fd = -1,
        .box_stdout_fd = -1,
        .watch = &quiet};
    collect_reader_init(
        &run->artefacts, spec.package.collect_max_files, spec.package.collect_max_bytes);
    int r =
        stage_run(&run->engine->spawner, &spec, &run->result->compile, &run->artefacts, err);
    return r < 0 ? err_wrap(err, r, "compile stage") : 0;
}

static int compile_in_box(struct running *run, struct err *err)
{
    struct image_root *held;
    unsigned root;
    int r = take_root(run, true, &root, &held, err);
    if (r == 0)
        r = compile_at(run, root, err);
    image_root_give(held);
    return r;
}

/* Whether the result may be kept in the cache: everything succeeded and nothing was cut off. */
static bool is_complete(const struct running *run)
{
    const struct stage_result *c = &run->result->compile;
    bool complete = c->status == RUN_OK && !c->limits_hit && !c->out_truncated &&
                    !c->err_truncated && run->artefacts.ended && !run->artefacts.cut &&
                    made_program(run);
    for (size_t i = 0; i < run->artefacts.files.count; i++)
        complete = complete && !run->artefacts.files.items[i].error;
    return complete;
}

/* False when the cache has no entry that fits the limits of this run. */
static bool take_cached(struct running *run, const struct cache_key *key)
{
    const struct run_limits *limits = &run->plan->compile.limits;
    struct stage_result *to = &run->result->compile;
    struct cache_entry entry;
    uint64_t bytes = 0;
    uint64_t start_ns = clock_ns();
    if (cache_get(run->engine->cache, key, run->watch->purse, &entry) < 0)
        return false;
    for (size_t i = 0; i < entry.files.count; i++)
        bytes += entry.files.items[i].size;
    if (entry.out_len > limits->output_kb << 10 || entry.err_len > limits->output_kb << 10 ||
        bytes > limits->disk_mb << 20 || buf_append(&to->out, entry.out, entry.out_len) < 0 ||
        buf_append(&to->err, entry.err, entry.err_len) < 0) {
        cache_entry_done(&entry);
        return false;
    }
    to->status = RUN_OK;
    to->exited = true;
    run->artefacts.files = entry.files;
    run->result->compile_cached = true;
    to->usage.wall_ms = (double)(clock_ns() - start_ns) / 1e6;
    return true;
}

static void keep(const struct running *run, const struct cache_key *key)
{
    const struct stage_result *c = &run->result->compile;
    const struct cache_entry entry = {.out = c->out.data,
        .out_len = c->out.len,
        .err = c->err.data,
        .err_len = c->err.len,
        .files = run->artefacts.files};
    cache_put(run->engine->cache, key, run->watch->purse, &entry);
}

static int compile(struct running *run, bool *ret_go_on, struct err *err)
{
    const struct run_stage *stage = &run->plan->compile;
    const struct engine *e = run->engine;
    struct run_result *result = run->result;
    struct cache_key key;
    /* The box of a control lacks barriers, so its results must not be shared. */
    bool use_cache =
        e->cache && run->spec->cache_scope && !run->watch->remove && !run->watch->host_root;
    result->has_compile = true;
    stage_result_done(&result->compile);
    stage_result_init(&result->compile, stage->limits.output_kb << 10);
    if (use_cache)
        cache_key_make(
            &(struct cache_question){.scope = e->cache_shared ? "" : run->spec->cache_scope,
                .image = run->spec->image,
                .runtime = run->runtime,
                .stage = stage,
                .files = &run->spec->files,
                .root = &e->registered[pick_root(run, true)]},
            &key);
    if (!use_cache || !take_cached(run, &key)) {
        int r = compile_in_box(run, err);
        if (r < 0)
            return r;
        if (use_cache && is_complete(run))
            keep(run, &key);
    }
    const struct stage_result *compiled = &result->compile;
    *ret_go_on = compiled->status == RUN_OK && made_program(run);
    if (!*ret_go_on)
        conclude_compile(result, run->runtime->compile_root.execs.items[stage->exec]);
    return 0;
}

static struct package_spec run_package(const struct running *run)
{
    const struct run_stage *stage = &run->plan->run;
    const struct run_variant *variant = run->variant;
    const struct strv *collect = variant->collect;
    return (struct package_spec){.argv = &stage->argv,
        .env = &stage->env,
        .globs = collect && collect->count ? collect : NULL,
        .files = {&run->spec->files, &run->artefacts.files, &stage->files, variant->files,
            run->spec->trust},
        .collect_max_files = COLLECT_MAX_FILES,
        .collect_max_bytes = COLLECT_MAX_BYTES,
        .program = run->plan->has_compile ? run->plan->compile.program : stage->program};
}

/* An answer has `network` when one was asked for, also when no box came to use it. */
static void note_network(struct running *run)
{
    struct stage_result *result = &run->result->run;
    if (run->spec->network && !result->network)
        result->network = network_report_new(run->spec->network->mode);
}

static int execute_at(
    struct running *run, unsigned root_number, bool has_zygote, struct err *err);

static int execute(struct running *run, struct err *err)
{
    struct image_root *held;
    unsigned root;
    int r = take_root(run, run->plan->run.in_toolchain, &root, &held, err);
    if (r < 0) {
        cleanup_close_fn(&run->variant->box_stdin_fd);
        cleanup_close_fn(&run->variant->box_stdout_fd);
        return r;
    }
    r = execute_at(run, root, !held || image_root_is_warm(held), err);
    image_root_give(held);
    return r;
}

void engine_set_templates(struct engine *engine, const struct template_keeper *keeper)
{
    engine->templates = keeper;
}

/* The keeper of template boxes, if a copy of one may serve this run. */
static const struct template_keeper *keeper_for(const struct running *run, bool has_zygote)
{
    const struct run_image *image = run->spec->image;
    const struct stage_def *def = &run->runtime->run;
    bool can_be = !has_zygote && image && image->preload.count && !image->is_whole &&
                  def->session_forks && def->warm.count && !run->plan->run.in_toolchain &&
                  !run->watch->remove && !run->watch->host_root;
    return can_be ? run->engine->templates : NULL;
}

/* has_zygote: something may be started ahead with this root. */
static struct stage_spec stage_for(
    const struct running *run, unsigned root_number, bool has_zygote)
{
    const struct run_stage *stage = &run->plan->run;
    const struct run_spec *asked = run->spec;
    const struct run_variant *variant = run->variant;
    const struct root_spec *root =
        stage->in_toolchain ? &run->runtime->compile_root : &run->runtime->run_root;
    const struct template_keeper *templates = keeper_for(run, has_zygote);
    return (struct stage_spec){.package = run_package(run),
        .root = root_number,
        .exec = (unsigned)stage->exec,
        .exec_path = stage->exec < root->execs.count ? root->execs.items[stage->exec]
                                                     : asked->image->program,
        .cold_reason = warmth_problem(&(struct warmth_question){.def = &run->runtime->run,
            .stage = stage,
            .asked = &asked->env,
            .mount_count = asked->mount_count,
            .has_image = !has_zygote && !templates,
            .has_template = templates,
            .collects = variant->collect && variant->collect->count,
            .has_network = asked->network,
            .is_compared = run->is_program}),
        .templates = templates,
        .template_use = {.image = asked->image,
            .runtime = run->runtime,
            .owner = asked->owner,
            .limits = &stage->limits},
        .owner = asked->owner,
        .is_root = is_root(run),
        .limits = stage->limits,
        .mounts = asked->mounts,
        .mount_count = asked->mount_count,
        .network = asked->network,
        .asker = asked->asker,
        .hub = &run->engine->network,
        .stdin_data = variant->stdin_data,
        .stdin_size = variant->stdin_size,
        .stdin_fd = variant->stdin_fd,
        .package_fd = run->package_fd,
        .box_stdin_fd = variant->box_stdin_fd,
        .box_stdout_fd = variant->box_stdout_fd,
        .stdout_max = variant->stdout_max,
        .watch = run->watch};
}

/* The run box has ended: completes the result, and takes the files that were read. */
static void take_end(struct running *run, struct collect_reader *reader)
{
    struct run_result *result = run->result;
    if (result->run.status == RUN_RUNTIME_ERROR && !result->run.message[0] &&
        !run->spec->image && run->plan->run.exec == 0)
        hint_missing_module(&run->runtime->run.missing, result->run.err.data,
            result->run.err.len, result->run.message, sizeof(result->run.message));
    if (result->run.is_warm)
        result->run.usage.memory_peak_kb +=
            run->engine->warm_base_kb[run->runtime - run->engine->runtimes->items];
    run_files_done(&result->files);
    result->files = reader->files;
    reader->files = (struct run_files){0};
    if (run->spec->trust)
        run_files_remove(&result->files, run->spec->trust);
}

static int execute_at(
    struct running *run, unsigned root_number, bool has_zygote, struct err *err)
{
    const struct run_stage *stage = &run->plan->run;
    struct run_result *result = run->result;
    struct stage_spec spec = stage_for(run, root_number, has_zygote);
    CLEANUP(strv_done) struct strv seeded_env = {0};
    if (stage->in_toolchain && use_seed(run, stage, &run->spec->env, &seeded_env))
        spec.package.env = &seeded_env;
    struct collect_reader reader;
    collect_reader_init(&reader, COLLECT_MAX_FILES, COLLECT_MAX_BYTES);
    stage_result_done(&result->run);
    stage_result_init(&result->run, stage->limits.output_kb << 10);
    note_network(run);
    if (run->variant->stdout_max)
        result->run.out.max = run->variant->stdout_kept;
    int r = stage_run(
        &run->engine->spawner, &spec, &result->run, spec.package.globs ? &reader : NULL, err);
    if (r == 0)
        take_end(run, &reader);
    collect_reader_done(&reader);
    return r;
}

struct network_hub *engine_network_hub(struct engine *engine)
{
    return &engine->network;
}

int engine_network_ready(struct engine *engine, unsigned mode, struct err *err)
{
    if (mode == NETWORK_ASK)
        return err_set(err, ERR_UNSUPPORTED, ENOSYS,
            "network: nobody can be asked here; `ask` needs a server (--url, HERMES_URL), or "
            "list the hosts: --network allow=HOST,...");
    int r = spawner_ready(&engine->spawner, err);
    return r < 0 ? r : engine_network_check(engine, mode, err);
}

void engine_network_totals(struct engine *engine, struct network_totals *ret)
{
    network_hub_totals(&engine->network, ret);
}

static int check_mounts(const struct engine *e, const struct run_spec *spec, struct err *err)
{
    for (size_t i = 0; i < spec->mount_count; i++) {
        if (spec->mounts[i].source >= e->source_count)
            return err_field(
                err, "mounts", "mount %zu names a directory that the engine does not have", i);
    }
    return 0;
}

/* Does everything that comes before the run box. */
static int make_ready(struct running *run, bool *ret_go_on, struct err *err)
{
    int r = check_mounts(run->engine, run->spec, err);
    if (r == 0 && run->spec->secrets.count && !run->spec->trust)
        r = err_set(err, ERR_UNSUPPORTED, ENOSYS,
            "secrets belong to a server (docs/secrets.md); without one there are none");
    *ret_go_on = !run->plan->has_compile;
    if (r == 0 && run->plan->has_compile)
        r = compile(run, ret_go_on, err);
    return r;
}

static void begin(struct running *run, struct engine *engine, const struct run_plan *plan,
    const struct run_watch *watch, struct run_result *result)
{
    const struct runtime *rt = plan->spec->runtime;
    *run = (struct running){.engine = engine,
        .spec = plan->spec,
        .plan = plan,
        .watch = watch ? watch : &no_watch,
        .runtime = rt,
        .roots = engine->roots[rt - engine->runtimes->items],
        .result = result,
        .package_fd = -1};
    if (!result->id[0])
        id_make("run_", result->id);
}

/* Called at the end of a run: the first run may begin before the spawner has answered the
 * seal. */
static void tell_isolation(const struct engine *engine, struct run_result *result)
{
    result->level = engine->spawner.seal.level;
    result->cgroup = engine->spawner.seal.cgroup;
}

int engine_run(struct engine *engine, const struct run_plan *plan,
    const struct run_watch *watch, struct run_result *result, struct err *err)
{
    const struct run_spec *spec = plan->spec;
    struct running run;
    bool go_on = false;
    const struct run_variant variant = {.collect = &spec->collect,
        .stdin_data = spec->stdin_data,
        .stdin_size = spec->stdin_size,
        .stdin_fd = spec->stdin_fd,
        .box_stdin_fd = -1,
        .box_stdout_fd = -1};
    begin(&run, engine, plan, watch, result);
    run.variant = &variant;
    note_network(&run);
    int r = make_ready(&run, &go_on, err);
    if (r == 0 && go_on)
        r = execute(&run, err);
    tell_isolation(engine, result);
    collect_reader_done(&run.artefacts);
    return r;
}

struct engine_program {
    struct running run;
};

void engine_program_free(struct engine_program *program)
{
    if (!program)
        return;
    collect_reader_done(&program->run.artefacts);
    close_fd(&program->run.package_fd);
    free(program);
}

const struct run_limits *engine_program_limits(const struct engine_program *program)
{
    return &program->run.plan->run.limits;
}

int engine_prepare(struct engine *engine, const struct run_plan *plan,
    const struct run_watch *watch, struct run_result *result, struct engine_program **ret,
    struct err *err)
{
    static const struct run_variant plain;
    struct engine_program *program = xcalloc(1, sizeof(*program));
    bool go_on = false;
    begin(&program->run, engine, plan, watch, result);
    program->run.variant = &plain;
    program->run.is_program = true;
    /* Only one thread may wait for the answer to the seal. */
    int r = spawner_ready(&engine->spawner, err);
    if (r == 0)
        r = make_ready(&program->run, &go_on, err);
    if (r == 0 && go_on) {
        struct package_spec package = run_package(&program->run);
        r = package_write(&package, &program->run.package_fd, err);
    }
    tell_isolation(engine, result);
    if (r < 0 || !go_on) {
        engine_program_free(program);
        program = NULL;
    }
    *ret = program;
    return r;
}

int engine_execute(const struct engine_program *program, const struct run_variant *variant,
    const struct run_watch *watch, struct run_result *result, struct err *err)
{
    struct running run = program->run;
    struct run_spec spec = *run.spec;
    CLEANUP(run_plan_done) struct run_plan own = {0}; /* when it has other arguments */
    run.watch = watch ? watch : &no_watch;
    run.result = result;
    run.variant = variant;
    if (variant->args || variant->files || variant->collect)
        run.package_fd = -1;
    if (variant->args) {
        spec.args = *variant->args;
        int r = run_plan_make(&spec, &run.engine->maxima, &own, err);
        if (r < 0) {
            cleanup_close_fn(&variant->box_stdin_fd);
            cleanup_close_fn(&variant->box_stdout_fd);
            return r;
        }
        run.plan = &own;
    }
    if (!result->id[0])
        id_make("run_", result->id);
    tell_isolation(run.engine, result);
    return execute(&run, err);
}
