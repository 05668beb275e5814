/* SPDX-License-Identifier: Apache-2.0 */

/* hermes image: builds, lists and removes images of this host, without a server. */

#include "cli/cli.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "cli/image/image.h"
#include "cli/image_build.h"
#include "cli/input.h"
#include "cli/options.h"
#include "cli/output.h"
#include "image/build.h"
#include "image/operator.h"
#include "image/place.h"
#include "lang/state_dir.h"
#include "network/ceiling.h"
#include "run/encode.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    OPT_NAME = 256,
    OPT_PIP,
    OPT_NPM,
    OPT_MAX_MB,
    OPT_MAX_AGE,
    OPT_FORMAT,
    OPT_PACKING,
    OPT_REF,
    OPT_OPERATOR
};

/* The default of the setting image_refresh_h. */
enum { REFRESH_S = 24 * 3600 };

static const struct option_row rows[] = {
    {"name", OPT_NAME, "NAME", "build, import: what the image is called"},
    {"language", 'l', "LANG",
        "build, import: python or javascript; import also bash (default: it is found)"},
    {"pip", OPT_PIP, "PACKAGE", "build: a package for Python; may be repeated"},
    {"npm", OPT_NPM, "PACKAGE", "build: a package for JavaScript; may be repeated"},
    {"operator", OPT_OPERATOR, NULL,
        "build: an image of the operator; asks the server of this host to restart with it"},
    {"ref", OPT_REF, "NAME", "import: which image, if the archive has several"},
    {"output", 'o', "FILE", "export: where the archive goes (default: standard output)"},
    {"format", OPT_FORMAT, "FORMAT", "export: oci (default) or docker"},
    {"compression", OPT_PACKING, "KIND", "export: gzip (default) or zstd, for oci"},
    {"max-mb", OPT_MAX_MB, "MB", "gc: remove images until the rest has at most this many MiB"},
    {"max-age", OPT_MAX_AGE, "DAYS", "gc: remove images that are older"},
    {"json", 'j', NULL, "print the answer, or the error, as JSON"},
    {0},
};

const struct option_table image_options = {
    .summary = "build and list images: languages with packages",
    .command = "hermes image",
    .operands = "build [FILE] | import FILE | export NAME | ls | inspect NAME | rm NAME | gc",
    .rows = rows,
    .before =
        "Builds images for `hermes run --image NAME`. An image is a language with packages. "
        "It is built in a box that reaches the hosts of HERMES_REGISTRY_HOSTS and nothing "
        "else.\n\n"
        "FILE is a requirements.txt, a package.json, any other .json file with the fields of "
        "POST /v1/images, a directory with recipe.json and lock.txt, or the name of a recipe "
        "that is shipped: `data`. For import it is an archive: an OCI layout as tar, what "
        "docker save writes, or a root file system as tar; plain, gzip or zstd; - is standard "
        "input. The images of a server are its own: use its HTTP API. With "
        "--operator the server has the image, too, and imports its packages ahead, if its "
        "setting operator_images names the recipe; `data` is there from the beginning.",
    .after =
        "Variables: HERMES_REGISTRY_HOSTS (hosts of the package index and of its files, with "
        "commas between), HERMES_PIP_INDEX, HERMES_NPM_REGISTRY, HERMES_REGISTRY_CA.\n\n"
        "Exit status: 0; 2 wrong usage, no such image, or a build that failed; 125 when Hermes "
        "itself failed.\n\n"
        "Examples:\n"
        "  hermes image build --operator data\n"
        "  hermes image build --name data requirements.txt\n"
        "  hermes image build --name plot --pip matplotlib --pip numpy\n"
        "  hermes run --image data report.py\n"
        "  hermes image export data -o data.tar\n"
        "  hermes image import --name mine root.tar.gz\n"
        "  hermes image gc --max-age 30",
};

static void take_option(void *to, int key, char *arg)
{
    struct image_args *args = to;
    switch (key) {
    case OPT_NAME:
        args->recipe.name = arg;
        break;
    case 'l':
        args->recipe.language = arg;
        break;
    case OPT_PIP:
        strv_add(&args->recipe.pip, arg);
        break;
    case OPT_NPM:
        strv_add(&args->recipe.npm, arg);
        break;
    case OPT_REF:
        args->ref = arg;
        break;
    case 'o':
        args->output = arg;
        break;
    case OPT_FORMAT:
        args->format = arg;
        break;
    case OPT_PACKING:
        args->compression = arg;
        break;
    case OPT_MAX_MB:
        args->max_mb = options_number(image_options.command, "max-mb", arg, 1 << 24);
        break;
    case OPT_MAX_AGE:
        args->max_days = options_number(image_options.command, "max-age", arg, 36500);
        break;
    case 'j':
        args->json = true;
        break;
    case OPT_OPERATOR:
        args->is_operator = true;
        break;
    default:
        if (args->count == 3)
            options_misuse(image_options.command, "too many arguments: `%s`", arg);
        args->words[args->count++] = arg;
    }
}

static const char *variable(const char *name)
{
    const char *value = getenv(name);
    return value ? value : "";
}

void image_print(const struct image *image, bool json)
{
    if (json)
        output_json(image_json(image), RESULT_JSON_FLAGS);
    else
        (void)printf("%s\n", image->name);
}

static void on_log(void *context, const char *data, size_t len)
{
    (void)fwrite(data, 1, len, stderr);
}

/* Loads the language and the tool that builds. */
int image_runtimes_load(
    const struct lang_dirs *dirs, struct runtime_registry *ret, struct err *err)
{
    int r = runtime_load(ret, dirs, NULL, err);
    if (r == 0)
        runtime_find_versions(ret, dirs->state);
    return r;
}

static void keep_only(struct runtime_registry *all, const struct runtime *wanted)
{
    for (size_t i = 0; i < all->count; i++) {
        struct runtime *rt = &all->items[i];
        rt->available = rt->available && (rt == wanted || rt->is_internal);
    }
}

int image_engine_open(struct image_place *place, struct runtime_registry *runtimes,
    const struct lang_dirs *dirs, const struct run_limits *limits, struct engine **ret,
    struct err *err)
{
    static struct network_ceiling ceiling;
    struct engine_options options = {.runtimes = runtimes,
        .dirs = *dirs,
        .spawner_path = cli_spawner_path(),
        .min_level = LEVEL_STRONG,
        .layers = place->layers,
        .incoming = place->incoming,
        .build_maxima = *limits};
    limits_maxima(&options.maxima);
    int r = 0;
    if (variable("HERMES_REGISTRY_HOSTS")[0]) {
        r = cli_network_ceiling(&ceiling, err);
        options.network = &ceiling;
    }
    return r < 0 ? r : engine_open(ret, &options, err);
}

/* A recipe that is shipped, or a directory; else what recipe_file.h reads. */
static int open_recipe(const struct image_args *args, const struct runtime_registry *runtimes,
    json_t **ret, struct err *err)
{
    const char *file = args->words[1];
    struct stat st;
    bool exists = file && stat(file, &st) == 0;
    int r = -ENOENT;
    if (file && (!exists || S_ISDIR(st.st_mode))) {
        cleanup_free char *path = exists ? xasprintf("%s/", file) : xstrdup(file);
        r = image_recipe_open(path, runtimes, ret, err);
    }
    if (r == 0 && args->recipe.name)
        (void)json_object_set_new(*ret, "name", json_string(args->recipe.name));
    return r == -ENOENT && (!err->code || !exists)
               ? recipe_file_read(&args->recipe, file, ret, err)
               : r;
}

static int read_recipe(const struct image_args *args, json_t **ret, struct err *err)
{
    const struct lang_dirs dirs = cli_dirs();
    CLEANUP(runtime_registry_done) struct runtime_registry runtimes = {0};
    CLEANUP(image_recipe_done) struct image_recipe recipe = {0};
    int r = image_runtimes_load(&dirs, &runtimes, err);
    if (r == 0)
        r = open_recipe(args, &runtimes, ret, err);
    if (r == 0 && args->is_operator)
        r = image_recipe_decode(*ret, &runtimes, &recipe, err);
    const char *why = r == 0 && args->is_operator ? image_operator_problem(&recipe) : NULL;
    return why ? err_set(err, ERR_INVALID, EINVAL, "%s", why) : r;
}

/* Asks the server that uses the same state directory to start again with the new table. */
static void ask_for_restart(void)
{
    char text[16] = "";
    cleanup_free char *state = NULL;
    struct err ignored = {0};
    cleanup_close int dir = state_dir_open(cli_dirs().state, &state, &ignored);
    cleanup_close int fd = dir < 0 ? -1 : openat(dir, "serve.lock", O_RDONLY | O_CLOEXEC);
    bool is_served = fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) < 0;
    long pid = is_served && read(fd, text, sizeof(text) - 1) > 0 ? strtol(text, NULL, 10) : 0;
    if (pid > 1 && kill((pid_t)pid, SIGUSR1) == 0)
        (void)fprintf(stderr, "hermes: the server starts again with the image\n");
    else
        (void)fprintf(stderr, "hermes: no server uses %s; the next one has the image\n",
            state ? state : "the state directory");
}

int image_build_here(struct image_place *place, json_t *body, const char *below,
    struct image *ret, struct err *err)
{
    const struct lang_dirs dirs = cli_dirs();
    CLEANUP(runtime_registry_done) struct runtime_registry runtimes = {0};
    CLEANUP(image_recipe_done) struct image_recipe recipe = {0};
    CLEANUP(image_done) struct image base = {0};
    cleanup_buf struct buf ca;
    struct engine *engine = NULL;
    bool is_new;
    const struct run_limits limits =
        image_build_limits(IMAGE_WALL_MS, IMAGE_MEMORY_MB, IMAGE_DISK_MB);
    buf_init(&ca, RECIPE_TEXT_MAX);
    const char *ca_file = variable("HERMES_REGISTRY_CA");
    int r = ca_file[0] ? input_read(ca_file, RECIPE_TEXT_MAX, &ca, err) : 0;
    if (r == 0)
        r = image_runtimes_load(&dirs, &runtimes, err);
    if (r == 0)
        r = image_recipe_decode(body, &runtimes, &recipe, err);
    const char *base_name = below ? below : recipe.base_name;
    if (r == 0 && base_name)
        r = image_store_find(place->store, IMAGE_FOR_ALL, base_name, &base, err);
    if (r == 0 && base_name)
        r = below ? image_recipe_build_on(&recipe, &base, err)
                  : image_recipe_build_upon(&recipe, &base, err);
    if (r < 0)
        return r;
    cleanup_free char *ca_text = xstrndup(ca.data ? ca.data : "", ca.len);
    struct image_builder builder = {.store = place->store,
        .runtimes = &runtimes,
        .tool = runtime_find_internal(&runtimes, IMAGE_BUILD_TOOL),
        .registry = {.pip_index = variable("HERMES_PIP_INDEX"),
            .npm_registry = variable("HERMES_NPM_REGISTRY"),
            .hosts = variable("HERMES_REGISTRY_HOSTS"),
            .ca = ca_text,
            .installer = image_installer(!str_eq(variable("HERMES_UV"), "false"))},
        .limits = &limits,
        .refresh_s = REFRESH_S,
        .owner = IMAGE_FOR_ALL,
        .log = on_log,
        .cancel_fd = cli_catch_signals()};
    keep_only(&runtimes, recipe.runtime);
    r = image_engine_open(place, &runtimes, &dirs, &limits, &engine, err);
    builder.engine = engine;
    cleanup_close int turn =
        r < 0 ? -EBADF : image_build_turn(place->store, builder.cancel_fd, err);
    if (r == 0 && turn < 0)
        r = turn;
    if (r == 0)
        r = image_build(&builder, &recipe, ret, &is_new, err);
    engine_close(engine);
    return r;
}

static int command_build(
    struct image_place *place, const struct image_args *args, struct err *err)
{
    CLEANUP(image_done) struct image image = {0};
    json_t *body = NULL;
    int r = read_recipe(args, &body, err);
    if (r == 0)
        r = image_build_here(place, body, NULL, &image, err);
    if (r == 0)
        image_print(&image, args->json);
    json_decref(body);
    if (r == 0 && args->is_operator)
        ask_for_restart();
    return r;
}

static int command_ls(struct image_place *place, const struct image_args *args, struct err *err)
{
    struct image *images;
    size_t count;
    json_t *list = json_array();
    int r = image_store_list(place->store, NULL, &images, &count, err);
    if (r == 0 && !args->json)
        (void)printf("%-24s %-38s %-11s %10s\n", "NAME", "ID", "LANGUAGE", "MiB");
    for (size_t i = 0; r == 0 && i < count; i++) {
        if (image_store_facts(place->store, &images[i]) < 0)
            continue;
        json_t *json = image_json(&images[i]);
        (void)json_object_del(json, "lock"); /* `inspect` has it */
        if (!args->json)
            (void)printf("%-24s %-38s %-11s %10.1f\n",
                str_eq(images[i].name, images[i].id) ? "-" : images[i].name, images[i].id,
                json_string_value(json_object_get(json, "language")),
                (double)json_integer_value(json_object_get(json, "size_bytes")) / (1 << 20));
        (void)json_array_append_new(list, json);
        image_done(&images[i]);
    }
    if (r == 0)
        free(images);
    if (r == 0 && args->json)
        output_json(json_pack("{s:O}", "images", list), RESULT_JSON_FLAGS);
    json_decref(list);
    return r;
}

static int command_inspect(
    struct image_place *place, const struct image_args *args, struct err *err)
{
    CLEANUP(image_done) struct image image = {0};
    int r = image_store_find(place->store, IMAGE_FOR_ALL, args->words[1], &image, err);
    if (r == 0)
        image_print(&image, true);
    return r;
}

/* The spawner of a `hermes run` that has just ended lets go of its image a moment later. */
static void wait_for_others(void *context)
{
}

static int command_rm(struct image_place *place, const struct image_args *args, struct err *err)
{
    const struct image_trim patience = {wait_for_others, NULL};
    return image_store_delete(place->store, IMAGE_FOR_ALL, args->words[1], &patience, err);
}

static int command_gc(struct image_place *place, const struct image_args *args, struct err *err)
{
    const struct image_bounds bounds = {
        .max_bytes = args->max_mb << 20, .made_before_s = image_made_before(args->max_days)};
    struct image_gone gone;
    int r = image_store_clean(place->store, &bounds, NULL, &gone, err);
    if (r == 0 && args->json)
        output_json(json_pack("{s:I, s:I, s:I}", "removed", (json_int_t)gone.images, "bytes",
                        (json_int_t)gone.bytes, "in_use", (json_int_t)gone.kept),
            0);
    else if (r == 0)
        (void)printf("removed %zu images (%.1f MiB); %zu are in use\n", gone.images,
            (double)gone.bytes / (1 << 20), gone.kept);
    return r;
}

static const struct command {
    const char *name;
    size_t min, max; /* words, the name included */
    int (*run)(struct image_place *place, const struct image_args *args, struct err *err);
} commands[] = {
    {"build", 1, 2, command_build},
    {"import", 2, 2, image_command_import},
    {"export", 2, 2, image_command_export},
    {"ls", 1, 1, command_ls},
    {"inspect", 2, 2, command_inspect},
    {"rm", 2, 2, command_rm},
    {"gc", 1, 1, command_gc},
};

static const struct command *find_command(const char *name)
{
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
        if (str_eq(commands[i].name, name))
            return &commands[i];
    return NULL;
}

int cmd_image(int argc, char **argv)
{
    struct image_args args = {0};
    struct image_place place = {0};
    struct err err = {0};
    options_parse(&image_options, argc, argv, take_option, &args);
    const struct command *command = args.count ? find_command(args.words[0]) : NULL;
    if (!command)
        options_misuse(image_options.command, "give one of: %s", image_options.operands);
    if (args.count < command->min || args.count > command->max)
        options_misuse(image_options.command, "%s has %s argument", command->name,
            args.count < command->min ? "no" : "too many");
    int r = image_place_open(cli_dirs().state, &place, &err);
    if (r == 0)
        r = command->run(&place, &args, &err);
    image_place_close(&place);
    recipe_words_done(&args.recipe);
    return output_end(image_options.command, r < 0 ? cli_fail("image", &err) : 0);
}
