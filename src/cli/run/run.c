/* SPDX-License-Identifier: Apache-2.0 */

/* hermes run: runs one program in a box, streamed, without a server. The exit status is the
 * program's own, or says what stopped it. With --url, hermes-session runs it on a server. */

#include "cli/cli.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "cli/image_build.h"
#include "cli/language.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/run/input.h"
#include "cli/run/options.h"
#include "cli/run/output.h"
#include "image/place.h"
#include "image/recipe.h"
#include "network/ceiling.h"
#include "network/entry.h"
#include "run/encode.h"
#include "run/engine.h"
#include "json/body.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

enum { OUTPUT_KEPT = 1 << 20 }; /* bytes of the result, before the limit is known */

/* A run on this host. */
struct local_run {
    const struct run_args *args;
    struct run_spec spec;
    struct engine_options engine;
    struct runtime_registry registry;
};

static void check_env(const char *text)
{
    const char *equals = strchr(text, '=');
    cleanup_free char *key = xstrndup(text, (size_t)(equals - text));
    const char *problem = run_env_problem(key, equals + 1, strlen(equals + 1));
    if (problem)
        options_wrong(run_options.command, "env", text, problem);
}

/* Adds a directory of this host to the run. False when there are too many. */
static bool add_source(struct local_run *run, const char *real, bool writable)
{
    size_t n = run->spec.mount_count;
    if (n == sizeof(run->spec.mounts) / sizeof(run->spec.mounts[0]))
        return false;
    run->spec.mounts[n].source = (unsigned)n;
    run->spec.mounts[n].writable = writable;
    run->engine.sources[n].path = xstrdup(real);
    run->engine.sources[n].writable = writable;
    run->spec.mount_count = run->engine.source_count = n + 1;
    return true;
}

/* Adds DIR or DIR:PATH. Without PATH the box sees it at /mnt/NAME. */
static void add_mount(struct local_run *run, const char *text, bool writable)
{
    const char *option = writable ? "rw" : "ro";
    const char *colon = strrchr(text, ':');
    cleanup_free char *dir = xstrndup(text, colon ? (size_t)(colon - text) : strlen(text));
    struct run_mount *mount = &run->spec.mounts[run->spec.mount_count];
    char real[PATH_MAX];
    struct stat st;
    if (!realpath(dir, real) || stat(real, &st) < 0 || !S_ISDIR(st.st_mode))
        options_wrong(run_options.command, option, dir, "not a directory");
    if (!add_source(run, real, writable))
        options_wrong(run_options.command, option, dir, "at most 8 directories");
    int len =
        colon ? snprintf(mount->path, sizeof(mount->path), "%s", colon + 1)
              : snprintf(mount->path, sizeof(mount->path), "/mnt/%s", strrchr(real, '/') + 1);
    bool below = str_has_prefix(mount->path, "/mnt/") || str_has_prefix(mount->path, "/box/");
    if (len < 0 || (size_t)len >= sizeof(mount->path) || !below ||
        str_name_problem(mount->path + 1, strlen(mount->path + 1)))
        options_wrong(run_options.command, option, text,
            "the path in the box must lie below /mnt or /box");
}

/* Mounts a world-readable and world-executable program into the box instead of copying it. */
static void mount_program(struct local_run *run, const char *path)
{
    struct run_files *files = &run->spec.files;
    struct run_mount *mount = &run->spec.mounts[run->spec.mount_count];
    char real[PATH_MAX];
    struct stat st;
    if (stat(path, &st) < 0 || (st.st_mode & 0005) != 0005 || !realpath(path, real) ||
        strlen(real) >= SPAWN_PATH_MAX || !add_source(run, real, false))
        return;
    (void)snprintf(mount->path, sizeof(mount->path), "/box/%s", run->spec.runtime->main_file);
    files->items[files->count - 1].mounted = true;
}

static int load_runtime(struct local_run *run, const struct run_file *code, struct err *err)
{
    const struct run_args *args = run->args;
    cleanup_free char *guess = NULL;
    const char *name = args->language;
    if (!name && !language_has_extension(args->file)) {
        guess = language_guess(code->content, code->size);
        if (!guess)
            return language_unknown(args->file, err);
        name = guess;
    }
    int r = language_load(&run->registry, &run->engine.dirs, name, args->file, err);
    if (r < 0)
        return guess ? language_unknown(args->file, err) : r;
    run->spec.runtime = &run->registry.items[0];
    return 0;
}

/* Reads the program and what lies beside it. */
static int read_files(struct local_run *run, struct err *err)
{
    const struct run_args *args = run->args;
    struct run_file code;
    int r = run_input_read(args->file, &code, err);
    if (r < 0)
        return r;
    if ((r = load_runtime(run, &code, err)) < 0)
        return r; /* `code` is freed by the end of the program */
    bool is_native = str_eq(run->spec.runtime->name, "native");
    const char *slash = strrchr(args->file, '/');
    const char *name = slash ? slash + 1 : args->file;
    if (is_native || str_eq(name, "-"))
        name = run->spec.runtime->main_file;
    if ((r = run_input_add(&run->spec.files, name, &code, err)) < 0)
        return r;
    if (is_native && code.mapped_size)
        mount_program(run, args->file);
    run->spec.entry = xstrdup(args->entry ? args->entry : name);
    for (size_t i = 0; r == 0 && i < args->files.count; i++)
        r = run_input_add_extra(&run->spec.files, args->files.items[i], err);
    if (r == 0 && args->install)
        r = run_input_add_packages(&run->spec.files, args->file, run->spec.runtime->name, err);
    if (!str_eq(args->file, "-"))
        run->spec.stdin_fd = STDIN_FILENO;
    return r;
}

/* What the options say, without reading a file. */
static void take_args(struct local_run *run)
{
    const struct run_args *args = run->args;
    run->spec.limits = args->limits;
    run->spec.args = args->args;
    run->spec.env = args->env;
    run->spec.compile_args = args->compile_args;
    run->spec.collect = args->collect;
    if (args->min_level)
        run->engine.min_level = args->min_level;
    for (size_t i = 0; i < args->env.count; i++)
        check_env(args->env.items[i]);
    for (size_t i = 0; i < args->share_count; i++)
        add_mount(run, args->shares[i].dir, args->shares[i].writable);
}

/* Prints the error of a run that Hermes could not do. With --json, a fault of Hermes itself is
 * the answer of a run with the member `error`. An unsupported host is not a result of the run.
 */
static int fail(const struct run_args *args, const struct run_result *result, struct err *err)
{
    int status = err_table[err->code].exit_status;
    if (!args->json || err->code == ERR_UNSUPPORTED || status != EXIT_HERMES)
        return cli_fail("run", err);
    json_t *answer = result_json_error(result, err);
    (void)json_object_set_new(answer, "error", json_error(err));
    output_error_line(run_options.command, err);
    output_json(answer, RESULT_JSON_FLAGS);
    return status;
}

static void on_started(void *context)
{
    progress_end();
}

/* The first output may come before the word that the program has started. */
static void on_output(void *context, enum run_stream stream, const char *data, size_t len)
{
    progress_end();
}

static int run_prepared(
    struct local_run *run, struct engine *engine, int signal_fd, struct err *err)
{
    const struct run_args *args = run->args;
    struct run_result result;
    run_result_init(&result, OUTPUT_KEPT);
    static const int sinks[] = {STDOUT_FILENO, STDERR_FILENO};
    int output_error = 0; /* negative errno once the program's output could not be written */
    struct run_watch watch = {.sink_fds = args->json ? NULL : sinks,
        .sink_error = &output_error,
        .started = on_started,
        .output = on_output,
        .cancel_fd = signal_fd};
    struct run_plan plan; /* not freed, like everything else here */
    int r = run_plan_make(&run->spec, engine_maxima(engine), &plan, err);
    if (r == 0 && run->spec.network)
        r = engine_network_ready(engine, run->spec.network->mode, err);
    if (r == 0)
        r = engine_run(engine, &plan, &watch, &result, err);
    progress_end();
    struct signalfd_siginfo caught = {0};
    if (read(signal_fd, &caught, sizeof(caught)) < 0)
        caught.ssi_signo = 0;
    int status;
    if (r < 0) {
        status = fail(args, &result, err);
    } else if (args->json) {
        output_json(result_json(&result, args->base64 ? ENCODE_BASE64 : ENCODE_UTF8),
            RESULT_JSON_FLAGS);
        status = run_exit_status(&result, (int)caught.ssi_signo);
    } else if (output_error < 0) {
        status = output_fail(run_options.command, -output_error);
    } else {
        status = run_output(&result, args->out_dir, (int)caught.ssi_signo);
    }
    return status;
}

/* Builds what the files ask for, or finds what the same files gave before. */
static int install(struct local_run *run, struct image_place *place, struct err *err)
{
    CLEANUP(image_recipe_done) struct image_recipe recipe = {0};
    CLEANUP(image_done) struct image image = {0};
    int r = image_recipe_of_files(&run->spec, &recipe, err);
    if (r < 0)
        return r;
    json_t *body = json_pack(
        "{s:s, s:s}", "language", run->spec.runtime->name, "requirements", recipe.requirements);
    r = body ? image_build_here(place, body, run->args->image, &image, err)
             : err_field(err, "install", "the list of packages is not valid UTF-8");
    json_decref(body);
    return r < 0 ? r : image_for_run(&image, run->spec.runtime, &run->spec.image, err);
}

/* Finds the image. The program ends before the place is closed. */
static int take_image(struct local_run *run, struct err *err)
{
    static struct image_place place;
    int r = image_place_open(run->engine.dirs.state, &place, err);
    if (r == 0)
        r = run->args->install ? install(run, &place, err)
                               : image_place_find(&place, run->args->image, run->spec.runtime,
                                     &run->spec.image, err);
    run->engine.layers = place.layers;
    run->engine.incoming = place.incoming;
    return r;
}

static int run_here(struct local_run *run, struct err *err)
{
    struct engine *engine = NULL;
    cleanup_close int signal_fd = cli_catch_signals();
    run->spec.network = run->args->network;
    int r = run->args->secrets.count
                ? err_set(err, ERR_UNSUPPORTED, ENOSYS,
                      "--secret names a secret of a server; add --url or --unix")
                : cli_network_permit(run->spec.network, &run->engine.network, err);
    if (r == 0)
        r = engine_start(&engine, &run->engine, err);
    if (r == 0)
        r = read_files(run, err);
    if (r == 0 && !run->spec.runtime->available)
        r = err_set(err, ERR_UNAVAILABLE, ENOENT, "%s", run->spec.runtime->missing);
    run->engine.runtimes = &run->registry;
    if (r == 0 && (run->args->image || run->args->install))
        r = take_image(run, err);
    if (r == 0 && !run->args->no_cache && (r = cli_cache(&run->engine.cache, err)) == 0)
        run->spec.cache_scope = xasprintf("uid %u", geteuid());
    if (r == 0) {
        bool is_compiled = run->spec.runtime->compiled;
        progress_begin("%s %s", is_compiled ? "compiling" : "preparing",
            is_compiled ? run->spec.entry : run->spec.runtime->name);
        r = engine_register(engine, &run->engine, err);
    }
    if (r == 0)
        return run_prepared(run, engine, signal_fd, err);
    progress_end();
    return cli_fail("run", err);
}

int cmd_run(int argc, char **argv)
{
    struct run_args args = {0};
    run_options_parse(&args, argc, argv);
    if (args.url || args.unix_path)
        return cli_become_session("run", CLI_REMOTE_RUN, argc, argv);
    struct local_run run = {.args = &args,
        .engine = {
            .min_level = LEVEL_STRONG, .dirs = cli_dirs(), .spawner_path = cli_spawner_path()}};
    run_spec_init(&run.spec);
    limits_maxima(&run.engine.maxima);
    take_args(&run);
    struct err err = {0};
    int status = run_here(&run, &err);
    /* Free nothing: the caller waits for our end, and Linux frees memory faster. */
    _exit(output_end(run_options.command, status));
}
