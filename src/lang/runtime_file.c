/* SPDX-License-Identifier: Apache-2.0 */

/* Turns runtime.json into a struct runtime. The toolchain is looked for before paths are read,
 * because {home} in paths stands for its directory. When no toolchain is found, the roots stay
 * empty and `missing` says what to install. Nothing is executed here. */

#include "lang/runtime_file.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "lang/hostpath.h"
#include "lang/json_file.h"
#include "lang/seed.h"
#include "lang/template.h"

#include <errno.h>
#include <nettle/sha2.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Most ready boxes of one stage, and most MiB of base_mb. */
enum { PARK_MAX = 64, PARK_BASE_MAX_MB = 1024 };

static void root_spec_done(struct root_spec *spec)
{
    for (size_t i = 0; i < spec->path_count; i++) {
        free(spec->paths[i].host);
        free(spec->paths[i].box);
    }
    free(spec->paths);
    strv_done(&spec->tools);
    strv_done(&spec->links);
    strv_done(&spec->execs);
}

static void stage_def_done(struct stage_def *stage)
{
    strv_done(&stage->argv);
    strv_done(&stage->env);
    strv_done(&stage->sources);
    strv_done(&stage->allow);
    strv_done(&stage->artefacts);
    strv_done(&stage->warm);
    strv_done(&stage->session);
    strv_done(&stage->session_warm);
    free(stage->image_program);
    strv_done(&stage->image_env);
    strv_done(&stage->image_programs);
    strv_done(&stage->early_env);
    free(stage->missing.words);
    free(stage->missing.image);
    strv_done(&stage->missing.modules);
    strv_done(&stage->park.args);
    free(stage->project_file);
    strv_done(&stage->project_argv);
    strv_done(&stage->project_artefacts);
    seed_def_done(&stage->seed);
}

void runtime_done(struct runtime *rt)
{
    free(rt->name);
    strv_done(&rt->aliases);
    strv_done(&rt->extensions);
    free(rt->main_file);
    free(rt->package);
    free(rt->missing);
    free(rt->version);
    free(rt->home);
    free(rt->user_home);
    free(rt->home_box);
    strv_done(&rt->version_argv);
    free(rt->compiler);
    free(rt->version_of.program);
    free(rt->version_of.since);
    free(rt->version_of.language);
    strv_done(&rt->parts);
    strv_done(&rt->sdk_names);
    run_files_done(&rt->sdk);
    stage_def_done(&rt->compile);
    stage_def_done(&rt->run);
    root_spec_done(&rt->compile_root);
    root_spec_done(&rt->run_root);
    free(rt->dir);
    free(rt->text);
    *rt = (struct runtime){0};
}

/* The first missing file of `requires`; NULL when all exist. */
static const char *missing_file(const struct strv *requires)
{
    for (size_t i = 0; i < requires->count; i++) {
        if (access(requires->items[i], F_OK) != 0)
        return requires->items[i];
    }
    return NULL;
}

static void lack(struct runtime *rt, const char *what)
{
    rt->available = false;
    free(rt->missing);
    rt->missing = xasprintf(
        "%s is only partly installed: %s is missing; install %s", rt->name, what, rt->package);
}

static const char *missing_pattern(const char *pattern)
{
    CLEANUP(strv_done) struct strv matches = {0};

    hostpath_glob(pattern, &matches);
    return matches.count == 0 ? pattern : NULL;
}

static const char *missing_path(const struct root_spec *root)
{
    const char *missing = NULL;

    for (size_t i = 0; missing == NULL && i < root->path_count; i++) {
        if (!root->paths[i].optional)
            missing = missing_pattern(root->paths[i].host);
    }
    return missing;
}

void runtime_check_parts(struct runtime *rt)
{
    const char *missing = NULL;

    if (!rt->available)
        return;
    for (size_t i = 0; missing == NULL && i < rt->parts.count; i++)
        missing = missing_pattern(rt->parts.items[i]);
    if (missing == NULL)
        missing = missing_path(&rt->compile_root);
    if (missing == NULL)
        missing = missing_path(&rt->run_root);
    if (missing != NULL)
        lack(rt, missing);
}

/* Returns the first directory that matches the pattern and contains the program. */
static char *find_home(const struct runtime *rt, const char *pattern, const char *program)
{
    cleanup_free char *expanded = hostpath_expand(pattern, rt->user_home);
    CLEANUP(strv_done) struct strv homes = {0};

    if (expanded == NULL)
        return NULL;
    hostpath_glob(expanded, &homes);
    for (size_t i = 0; i < homes.count; i++) {
        cleanup_free char *full = xasprintf("%s/%s", homes.items[i], program);

        if (access(full, X_OK) == 0)
            return xstrdup(homes.items[i]);
    }
    return NULL;
}

/* Tries one candidate, at `given` if another process found it there. On success the runtime
 * gets its home, and the candidate's tools, paths and variables go into the stage that uses the
 * toolchain. Templates are checked with that stage's. Returns 1 when the toolchain exists, 0
 * when not. */
static int try_candidate(struct json_at at, const char *given, struct runtime *rt)
{
    static const char *const keys[] = {
        "home", "program", "box", "requires", "paths", "tools", "env", NULL};
    struct root_spec *root = rt->compiled ? &rt->compile_root : &rt->run_root;
    struct stage_def *stage = rt->compiled ? &rt->compile : &rt->run;
    cleanup_free char *pattern = NULL, *program = NULL, *box = NULL;
    CLEANUP(strv_done) struct strv requires = {0};
    int r;

    if ((r = json_at_keys(at, keys)) < 0 ||
        (r = json_at_string(at, "home", true, &pattern)) < 0 ||
        (r = json_at_string(at, "program", true, &program)) < 0 ||
        (r = json_at_string(at, "box", false, &box)) < 0 ||
        (r = json_at_strv(at, "requires", &requires)) < 0)
        return r;
    cleanup_free char *home = given != NULL ? xstrdup(given) : find_home(rt, pattern, program);
    const char *lacking = given != NULL ? NULL : missing_file(&requires);
    if (home != NULL && lacking != NULL)
        lack(rt, lacking);
    if (home == NULL || lacking != NULL)
        return 0;
    rt->home_box = box != NULL ? take_ptr(box) : xstrdup(home);
    rt->home = take_ptr(home);
    if ((r = json_at_strv(at, "tools", &root->tools)) < 0 ||
        (r = json_at_map(at, "env", &stage->env)) < 0 ||
        (r = json_at_paths(at, "paths", rt, root)) < 0)
        return r;
    return 1;
}

static int find_toolchain(
    struct json_at at, const struct runtime_found *found, struct runtime *rt)
{
    json_t *list = json_object_get(at.object, "toolchain");
    json_t *item;
    size_t i;

    if (!json_is_array(list))
        return json_file_problem(
            at.file, "toolchain", "must be a list (empty if none is needed)");
    rt->available = json_array_size(list) == 0;
    json_array_foreach(list, i, item)
    {
        char name[32];
        struct json_at candidate = {.file = at.file, .object = item, .name = name};

        (void)snprintf(name, sizeof(name), "toolchain[%zu]", i);
        if (!json_is_object(item))
            return json_file_problem(at.file, name, "must be an object");
        if (found != NULL && (!found->available || found->candidate != i))
            continue;
        int r = try_candidate(candidate, found != NULL ? found->home : NULL, rt);
        if (r < 0)
            return r;
        if (r > 0) {
            rt->available = true;
            rt->candidate = (uint32_t)i;
            free(rt->missing);
            rt->missing = NULL;
            return 0;
        }
    }
    if (!rt->available && rt->missing == NULL)
        rt->missing = xasprintf("%s is not installed; install %s", rt->name, rt->package);
    return 0;
}

static int check_templates(
    struct json_at at, const char *key, const struct strv *templates, bool list_allowed)
{
    for (size_t i = 0; i < templates->count; i++) {
        bool first_of_argv = list_allowed && i == 0;
        const char *problem =
            template_problem(templates->items[i], list_allowed && !first_of_argv);
        char field[96];

        if (problem == NULL)
            continue;
        (void)snprintf(field, sizeof(field), "%s.%s[%zu]", at.name, key, i);
        return json_file_problem(at.file, field, "%s", problem);
    }
    return 0;
}

/* Makes argv[0] a program of the root. It must be a fixed absolute path; {home} is allowed at
 * its beginning. */
static int add_exec(struct json_at at, const char *key, const struct strv *argv,
    const struct runtime *rt, struct root_spec *root)
{
    const char *text = argv->items[0];
    bool in_home = str_has_prefix(text, "{home}/");
    const char *fixed = in_home ? text + strlen("{home}") : text;
    char field[96];

    (void)snprintf(field, sizeof(field), "%s.%s[0]", at.name, key);
    if (fixed[0] != '/' || strchr(fixed, '{') != NULL)
        return json_file_problem(at.file, field, "must be an absolute path or {home}/...");
    if (in_home && rt->home_box == NULL && rt->available)
        return json_file_problem(at.file, field, "uses {home} without a toolchain");
    if (!in_home)
        strv_add(&root->execs, fixed);
    else if (rt->home_box != NULL)
        strv_add_owned(&root->execs, xasprintf("%s%s", rt->home_box, fixed));
    return 0;
}

static int read_project(struct json_at at, const struct runtime *rt, struct stage_def *stage,
    struct root_spec *root)
{
    static const char *const keys[] = {"file", "argv", "artefacts", NULL};
    char name[96];
    struct json_at project;
    int r = json_at_object(at, "project", name, &project);

    if (r < 0 || project.object == NULL)
        return r;
    if ((r = json_at_keys(project, keys)) < 0 ||
        (r = json_at_string(project, "file", true, &stage->project_file)) < 0 ||
        (r = json_at_strv(project, "argv", &stage->project_argv)) < 0 ||
        (r = json_at_strv(project, "artefacts", &stage->project_artefacts)) < 0)
        return r;
    if (stage->project_argv.count == 0)
        return json_file_problem(at.file, name, "argv must not be empty");
    if ((r = check_templates(project, "argv", &stage->project_argv, true)) < 0)
        return r;
    return add_exec(project, "argv", &stage->project_argv, rt, root);
}

/* Reads `park`. Its program is added before sh, which must be the last program of the root. */
static int read_park(struct json_at at, const struct runtime *rt, struct stage_def *stage,
    struct root_spec *root)
{
    static const char *const keys[] = {"program", "args", "min", "max", "base_mb", NULL};
    struct park_def *park = &stage->park;
    CLEANUP(strv_done) struct strv program = {0};
    cleanup_free char *path = NULL;
    char name[96];
    struct json_at def;
    int r = json_at_object(at, "park", name, &def);

    if (r < 0 || def.object == NULL)
        return r;
    if ((r = json_at_keys(def, keys)) < 0 ||
        (r = json_at_string(def, "program", false, &path)) < 0 ||
        (r = json_at_strv(def, "args", &park->args)) < 0 ||
        (r = json_at_count(def, "min", PARK_MAX, &park->min)) < 0 ||
        (r = json_at_count(def, "max", PARK_MAX, &park->max)) < 0 ||
        (r = json_at_count(def, "base_mb", PARK_BASE_MAX_MB, &park->base_mb)) < 0)
        return r;
    if (park->max < park->min || park->max == 0)
        return json_file_problem(at.file, name, "max must be at least 1 and min");
    if (path == NULL)
        return 0;
    strv_add(&program, path);
    park->exec = root->execs.count;
    return add_exec(def, "program", &program, rt, root);
}

/* Reads `image`: how programs start in a box that has an image of the language. */
static int read_image(struct json_at at, struct stage_def *stage)
{
    static const char *const keys[] = {"program", "env", "programs", NULL};
    char name[96];
    struct json_at def;
    int r = json_at_object(at, "image", name, &def);

    if (r < 0 || def.object == NULL)
        return r;
    stage->has_images = true;
    if ((r = json_at_keys(def, keys)) < 0 ||
        (r = json_at_string(def, "program", false, &stage->image_program)) < 0 ||
        (r = json_at_strv(def, "programs", &stage->image_programs)) < 0)
        return r;
    return json_at_map(def, "env", &stage->image_env);
}

/* Reads `missing_module`: a hint for programs that lack a module of an image. */
static int read_missing(struct json_at at, struct missing_module *ret)
{
    static const char *const keys[] = {"words", "image", "modules", NULL};
    char name[96];
    struct json_at def;
    int r = json_at_object(at, "missing_module", name, &def);

    if (r < 0 || def.object == NULL)
        return r;
    if ((r = json_at_keys(def, keys)) < 0 ||
        (r = json_at_string(def, "words", true, &ret->words)) < 0 ||
        (r = json_at_string(def, "image", true, &ret->image)) < 0)
        return r;
    return json_at_strv(def, "modules", &ret->modules);
}

static int read_stage(struct json_at at, const struct runtime *rt, struct stage_def *stage,
    struct root_spec *root)
{
    static const char *const keys[] = {"argv", "env", "paths", "tools", "sources", "allow",
        "artefacts", "warm", "park", "session", "session_warm", "session_fork", "project",
        "links", "image", "seed", "early_env", "missing_module", NULL};
    char *fork = NULL;
    int r;

    if ((r = json_at_keys(at, keys)) < 0 || (r = json_at_strv(at, "argv", &stage->argv)) < 0 ||
        (r = json_at_map(at, "env", &stage->env)) < 0 ||
        (r = json_at_strv(at, "sources", &stage->sources)) < 0 ||
        (r = json_at_strv(at, "allow", &stage->allow)) < 0 ||
        (r = json_at_strv(at, "artefacts", &stage->artefacts)) < 0 ||
        (r = json_at_strv(at, "warm", &stage->warm)) < 0 ||
        (r = json_at_strv(at, "session", &stage->session)) < 0 ||
        (r = json_at_strv(at, "session_warm", &stage->session_warm)) < 0 ||
        (r = json_at_string(at, "session_fork", false, &fork)) < 0 ||
        (r = json_at_strv(at, "tools", &root->tools)) < 0 ||
        (r = json_at_map(at, "links", &root->links)) < 0 || (r = read_image(at, stage)) < 0 ||
        (r = json_at_strv(at, "early_env", &stage->early_env)) < 0 ||
        (r = read_missing(at, &stage->missing)) < 0 ||
        (r = seed_def_read(at, &stage->seed)) < 0)
        return r;
    root->has_seed = stage->seed.recipe;
    stage->session_forks = fork && str_eq(fork, "memory");
    bool is_fork_known = !fork || stage->session_forks;
    free(fork);
    if (!is_fork_known)
        return json_file_problem(
            at.file, "session_fork", "session_fork is \"memory\" or absent");
    if (stage->argv.count == 0)
        return json_file_problem(at.file, at.name, "argv is missing or empty");
    if ((r = check_templates(at, "argv", &stage->argv, true)) < 0 ||
        (r = check_templates(at, "env", &stage->env, false)) < 0 ||
        (r = add_exec(at, "argv", &stage->argv, rt, root)) < 0 ||
        (r = read_project(at, rt, stage, root)) < 0 || (r = read_park(at, rt, stage, root)) < 0)
        return r;
    if (stage->session.count && (r = add_exec(at, "session", &stage->session, rt, root)) < 0)
        return r;
    strv_add(&root->execs, "/usr/bin/sh");
    return rt->available ? json_at_paths(at, "paths", rt, root) : 0;
}

static int read_prepare(struct json_at at, enum runtime_prepare *ret)
{
    static const char *const names[PREPARE_COUNT] = {
#define PREPARE_NAME(id, name) [PREPARE_##id] = (name),
        RUNTIME_PREPARE(PREPARE_NAME)
#undef PREPARE_NAME
    };
    cleanup_free char *wanted = NULL;
    int r = json_at_string(at, "prepare", false, &wanted);

    if (r < 0 || wanted == NULL)
        return r;
    for (unsigned i = 1; i < PREPARE_COUNT; i++) {
        if (str_eq(names[i], wanted)) {
            *ret = i;
            return 0;
        }
    }
    return json_file_problem(at.file, "prepare", "unknown rule \"%s\"", wanted);
}

static int read_version_of(struct json_at at, struct version_of *ret)
{
    static const char *const keys[] = {"program", "since", "language", NULL};
    char name[96];
    struct json_at of;
    int r = json_at_object(at, "version_of", name, &of);

    if (r < 0 || of.object == NULL)
        return r;
    if ((r = json_at_keys(of, keys)) < 0 ||
        (r = json_at_string(of, "program", true, &ret->program)) < 0 ||
        (r = json_at_string(of, "since", true, &ret->since)) < 0)
        return r;
    return json_at_string(of, "language", true, &ret->language);
}

static int read_names(struct json_at at, struct runtime *rt)
{
    int r;

    if ((r = json_at_string(at, "name", true, &rt->name)) < 0 ||
        (r = json_at_strv(at, "aliases", &rt->aliases)) < 0 ||
        (r = json_at_strv(at, "extensions", &rt->extensions)) < 0 ||
        (r = json_at_string(at, "main_file", true, &rt->main_file)) < 0 ||
        (r = json_at_string(at, "package", true, &rt->package)) < 0 ||
        (r = json_at_strv(at, "version", &rt->version_argv)) < 0 ||
        (r = read_version_of(at, &rt->version_of)) < 0 ||
        (r = json_at_strv(at, "parts", &rt->parts)) < 0 ||
        (r = read_prepare(at, &rt->prepare)) < 0 ||
        (r = json_at_strv(at, "sdk", &rt->sdk_names)) < 0 ||
        (r = json_at_limits(at, "limits", &rt->limits)) < 0 ||
        (r = json_at_limits(at, "compile_limits", &rt->compile_limits)) < 0)
        return r;
    if (str_name_problem(rt->main_file, strlen(rt->main_file)) != NULL)
        return json_file_problem(at.file, "main_file", "is not a valid name of a file");
    for (size_t i = 0; i < rt->sdk_names.count; i++) {
        const char *name = rt->sdk_names.items[i];

        if (str_name_problem(name, strlen(name)) != NULL)
            return json_file_problem(at.file, "sdk", "has an invalid name of a file");
    }
    const char *base = strrchr(rt->dir, '/');
    if (!str_eq(rt->name, base != NULL ? base + 1 : rt->dir))
        return json_file_problem(at.file, "name", "must be the name of its directory");
    return 0;
}

static int read_all(struct json_at at, const struct runtime_found *found, struct runtime *rt)
{
    static const char *const keys[] = {"name", "aliases", "extensions", "main_file", "package",
        "version", "version_of", "parts", "toolchain", "prepare", "sdk", "limits",
        "compile_limits", "compile", "run", "internal", NULL};
    char compile_name[96], run_name[96];
    struct json_at compile, run;
    int r;

    if ((r = json_at_keys(at, keys)) < 0 || (r = read_names(at, rt)) < 0 ||
        (r = json_at_object(at, "compile", compile_name, &compile)) < 0 ||
        (r = json_at_object(at, "run", run_name, &run)) < 0)
        return r;
    rt->compiled = compile.object != NULL;
    rt->is_internal = json_is_true(json_object_get(at.object, "internal"));
    if ((r = find_toolchain(at, found, rt)) < 0)
        return r;
    if (run.object == NULL)
        return json_file_problem(at.file, "run", "is missing");
    if (rt->compiled && (r = read_stage(compile, rt, &rt->compile, &rt->compile_root)) < 0)
        return r;
    r = read_stage(run, rt, &rt->run, &rt->run_root);
    rt->run_root.has_seed = rt->compile.seed.in_run;
    if (r == 0 && rt->run.seed.recipe != NULL)
        return json_file_problem(at.file, "run", "only the compile stage has a seed");
    return r;
}

int runtime_file_read(const char *dir, const char *home, const char *text, size_t len,
    const struct runtime_found *found, struct runtime *ret, struct err *err)
{
    cleanup_free char *path = xasprintf("%s/runtime.json", dir);
    struct json_file file;
    struct runtime rt = {.dir = xstrdup(dir), .user_home = home ? xstrdup(home) : NULL};
    int r = json_file_parse(&file, path, text, len, err);

    if (r == 0) {
        r = read_all(
            (struct json_at){.file = &file, .object = file.root, .name = ""}, found, &rt);
        json_file_done(&file);
    }
    if (r < 0) {
        runtime_done(&rt);
        return r;
    }
    if (rt.compiled) {
        struct sha256_ctx ctx;

        sha256_init(&ctx);
        sha256_update(&ctx, len, (const uint8_t *)text);
        sha256_digest(&ctx, sizeof(rt.digest), rt.digest);
    }
    *ret = rt;
    return 0;
}
