/* SPDX-License-Identifier: Apache-2.0 */

/* Turns a request into argument lists. The order matters: first the entry file and the sources
 * are chosen, then a rule of run/prepare.c may change them, then the templates are expanded. A
 * value of the request reaches a program only as one argument or one variable. */

#include "run/plan.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "lang/template.h"
#include "run/prepare.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { COMPILE_ARGS_MAX = 64, COMPILE_ARG_LEN_MAX = 256 };

static void run_stage_done(struct run_stage *stage)
{
    strv_done(&stage->argv);
    strv_done(&stage->env);
    strv_done(&stage->artefacts);
    free(stage->program);
    run_files_done(&stage->files);
    *stage = (struct run_stage){0};
}

void run_plan_done(struct run_plan *plan)
{
    run_stage_done(&plan->compile);
    run_stage_done(&plan->run);
    *plan = (struct run_plan){0};
}

static void draft_done(struct plan_draft *draft)
{
    free(draft->entry);
    free(draft->entry_dir);
    free(draft->main_class);
    strv_done(&draft->sources);
}

static bool has_extension(const char *name, const struct strv *extensions)
{
    for (size_t i = 0; i < extensions->count; i++) {
        if (str_has_suffix(name, extensions->items[i]))
            return true;
    }
    return false;
}

/* Chooses the named entry, else the main file, else the only file of this language. The entry
 * may stay NULL for languages that compile all their sources together. */
static int choose_entry(struct plan_draft *draft, struct err *err)
{
    const struct run_files *files = &draft->spec->files;
    const char *named = draft->spec->entry;
    const char *found = NULL;
    size_t candidates = 0;

    if (files->count == 0)
        return err_field(err, "code", "there is nothing to run: give code or files");
    if (named != NULL && run_files_find(files, named) == NULL)
        return err_field(err, "entry", "there is no file \"%.128s\" among the files", named);
    if (named == NULL && run_files_find(files, draft->rt->main_file) != NULL)
        named = draft->rt->main_file;
    for (size_t i = 0; named == NULL && i < files->count; i++) {
        if (files->count == 1 || has_extension(files->items[i].name, &draft->rt->extensions)) {
            found = files->items[i].name;
            candidates++;
        }
    }
    if (named == NULL && candidates == 1)
        named = found;
    if (named == NULL)
        return 0;
    draft->entry = xstrdup(named);
    const char *slash = strrchr(named, '/');
    draft->entry_dir =
        slash != NULL ? xasprintf("./%.*s", (int)(slash - named), named) : xstrdup(".");
    return 0;
}

static void collect_sources(struct plan_draft *draft)
{
    const struct run_files *files = &draft->spec->files;
    const struct strv *wanted = &draft->rt->compile.sources;

    if (wanted->count == 0)
        wanted = &draft->rt->extensions;
    for (size_t i = 0; i < files->count; i++) {
        if (has_extension(files->items[i].name, wanted))
            strv_add(&draft->sources, files->items[i].name);
    }
}

static const char *compile_arg_problem(const char *arg, const struct strv *allow)
{
    size_t len = strlen(arg);

    if (len == 0 || len > COMPILE_ARG_LEN_MAX)
        return "is empty or too long";
    for (size_t i = 0; i < len; i++) {
        if ((unsigned char)arg[i] < 0x20 || arg[i] == 0x7f)
            return "contains a control character";
    }
    for (size_t i = 0; i < allow->count; i++) {
        if (str_glob_match(allow->items[i], arg))
            return NULL;
    }
    return "is not among the options allowed for this language";
}

static int check_compile_args(const struct plan_draft *draft, struct err *err)
{
    const struct strv *args = &draft->spec->compile_args;

    if (args->count == 0)
        return 0;
    if (!draft->rt->compiled)
        return err_field(err, "compile_args", "%s has no compile stage", draft->rt->name);
    if (args->count > COMPILE_ARGS_MAX)
        return err_field(err, "compile_args", "there are more than %d", COMPILE_ARGS_MAX);
    for (size_t i = 0; i < args->count; i++) {
        const char *problem = compile_arg_problem(args->items[i], &draft->rt->compile.allow);

        if (problem != NULL)
            return err_field(err, "compile_args", "\"%.64s\" %s", args->items[i], problem);
    }
    return 0;
}

static int missing_value(
    const struct plan_draft *draft, const char *name, int r, struct err *err)
{
    if (r != -ENOENT)
        return err_set(err, ERR_TOO_LARGE, -r, "an argument of the program is too long");
    if (str_has_prefix(name, "entry"))
        return err_field(err, "entry",
            "there is no file \"%s\" among the files; name the one to run as entry",
            draft->rt->main_file);
    return err_field(err, "files", "the files give no %s for %s", name, draft->rt->name);
}

static int expand_stage(const struct plan_draft *draft, const struct stage_def *def,
    const struct strv *argv, struct run_stage *stage, struct err *err)
{
    const struct template_vars vars = {
        .home = draft->rt->home_box,
        .entry = draft->entry,
        .entry_dir = draft->entry_dir,
        .main_class = draft->main_class,
        .limits = &stage->limits,
        .args = &draft->spec->args,
        .compile_args = &draft->spec->compile_args,
        .sources = &draft->sources,
    };
    CLEANUP(strv_done) struct strv own = {0};
    const char *name = "?";
    int r = 0;

    for (size_t i = 0; r == 0 && i < argv->count; i++)
        r = template_expand(argv->items[i], &vars, &stage->argv, &name);
    for (size_t i = 0; r == 0 && i < def->env.count; i++)
        r = template_expand(def->env.items[i], &vars, &own, &name);
    if (r < 0)
        return missing_value(draft, name, r, err);
    environment_add(&own, &stage->env);
    return 0;
}

static void add_image_env(
    const struct stage_def *def, const struct run_image *image, struct strv *env)
{
    for (size_t i = 0; !image->is_whole && i < def->image_env.count; i++)
        plan_set_env(env, def->image_env.items[i]);
}

/* The compile stage does not see the request's environment, nor that of its image: variables
 * such as CPATH or RUSTFLAGS would be compiler options that no allow list has checked. */
static int plan_compile(struct plan_draft *draft, struct err *err)
{
    const struct stage_def *def = &draft->rt->compile;
    struct run_stage *stage = &draft->plan->compile;
    const struct strv *argv = draft->is_project ? &def->project_argv : &def->argv;

    if (template_uses(argv, "sources") && draft->sources.count == 0) {
        cleanup_free char *endings = str_join((const char *const *)draft->rt->extensions.items,
            draft->rt->extensions.count, ", ");

        return err_field(
            err, "files", "there is no file of %s (%s) to compile", draft->rt->name, endings);
    }
    strv_add_all(
        &stage->artefacts, draft->is_project ? &def->project_artefacts : &def->artefacts);
    stage->exec = draft->is_project ? 1 : 0;
    int r = expand_stage(draft, def, argv, stage, err);
    if (r == 0 && draft->spec->image)
        add_image_env(def, draft->spec->image, &stage->env);
    return r;
}

static void call_it(struct strv *argv, const char *program)
{
    free(argv->items[0]);
    argv->items[0] = xstrdup(program);
}

/* In a whole root the interpreter lies where the image has it. An interpreter of Hermes
 * itself (hermes-shell) gets that path as an argument. */
static size_t plan_whole(
    const struct run_image *image, size_t exec, struct strv *argv, struct strv *env)
{
    plan_set_env(env, "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
    if (argv && exec == 0)
        call_it(argv, image->program);
    else if (argv)
        strv_add(argv, image->program);
    return exec == 0 ? image->exec : exec;
}

size_t plan_image(const struct stage_def *def, const struct run_image *image, size_t exec,
    struct strv *argv, struct strv *env)
{
    if (image->is_whole)
        exec = plan_whole(image, exec, argv, env);
    else if (argv && def->image_program)
        call_it(argv, def->image_program);
    add_image_env(def, image, env);
    for (size_t i = 0; i < image->env.count; i++)
        plan_set_env(env, image->env.items[i]);
    return exec;
}

static int plan_run(struct plan_draft *draft, struct err *err)
{
    const struct stage_def *def = &draft->rt->run;
    struct run_stage *stage = &draft->plan->run;
    int r = expand_stage(draft, def, &def->argv, stage, err);

    if (r == 0 && draft->spec->image)
        stage->exec =
            plan_image(def, draft->spec->image, stage->exec, &stage->argv, &stage->env);
    for (size_t i = 0; r == 0 && i < draft->spec->env.count; i++)
        plan_set_env(&stage->env, draft->spec->env.items[i]);
    return r;
}

/* Sets PATH, so that a command line finds the programs of the image first, then the programs of
 * the toolchain. */
static void add_home(const struct runtime *rt, bool has_image, struct strv *env)
{
    static const char usual[] = "/usr/local/bin:/usr/bin:/bin";
    const char *path = has_image ? environment_get(env, "PATH") : NULL;
    cleanup_free char *own = xasprintf("%s/bin", rt->home_box);
    cleanup_free char *whole = xasprintf("PATH=%s:%s", path ? path : own, path ? own : usual);

    plan_set_env(env, whole);
}

/* Plans a command line of the request. There is no entry and no compile stage, but the box has
 * the toolchain. The box's program is sh, and the command line runs under the same limits as
 * any other code. */
static int plan_shell(struct plan_draft *draft, struct err *err)
{
    const struct runtime *rt = draft->rt;
    const struct stage_def *def = rt->compiled ? &rt->compile : &rt->run;
    const struct root_spec *root = rt->compiled ? &rt->compile_root : &rt->run_root;
    const struct run_image *image = draft->spec->image;
    struct run_stage *stage = &draft->plan->run;
    CLEANUP(strv_done) struct strv none = {0};
    int r = expand_stage(draft, def, &none, stage, err);

    if (r < 0)
        return r;
    draft->plan->has_compile = false;
    stage->exec = root->execs.count - 1;
    stage->in_toolchain = rt->compiled;
    strv_add(&stage->argv, "sh");
    strv_add(&stage->argv, "-c");
    strv_add(&stage->argv, draft->spec->shell);
    if (image && rt->compiled)
        add_image_env(&rt->run, image, &stage->env);
    if (image)
        (void)plan_image(def, image, stage->exec, NULL, &stage->env);
    if (rt->home_box && !str_eq(rt->home_box, "/usr") && !(image && image->is_whole))
        add_home(rt, image, &stage->env);
    for (size_t i = 0; i < draft->spec->env.count; i++)
        plan_set_env(&stage->env, draft->spec->env.items[i]);
    return 0;
}

static int make_plan(struct plan_draft *draft, struct err *err)
{
    const struct runtime *rt = draft->rt;
    prepare_fn *prepare = prepare_table[rt->prepare];
    int r;

    if ((r = choose_entry(draft, err)) < 0 || (r = check_compile_args(draft, err)) < 0)
        return r;
    collect_sources(draft);
    draft->is_project = rt->compile.project_file != NULL &&
                        run_files_find(&draft->spec->files, rt->compile.project_file) != NULL;
    if (prepare != NULL && (r = prepare(draft, err)) < 0)
        return r;
    if (rt->compiled && (r = plan_compile(draft, err)) < 0)
        return r;
    return plan_run(draft, err);
}

/* Limits of a compile stage are checked for every language alike, also for one without. */
static int check_limits(
    const struct run_plan *plan, const struct run_limits *maxima, struct err *err)
{
    int r = limits_check(&plan->run.limits, maxima, "limits.", err);

    return r < 0 ? r : limits_check(&plan->compile.limits, maxima, "compile_limits.", err);
}

int run_plan_make(const struct run_spec *spec, const struct run_limits *maxima,
    struct run_plan *ret, struct err *err)
{
    const struct runtime *rt = spec->runtime;
    CLEANUP(run_plan_done) struct run_plan plan = {.spec = spec, .has_compile = rt->compiled};
    CLEANUP(draft_done) struct plan_draft draft = {.rt = rt, .spec = spec, .plan = &plan};

    if (rt->is_internal && !spec->is_internal)
        return err_field(err, "language", "unknown language `%s`", rt->name);
    if (!rt->available)
        return err_set(err, ERR_UNAVAILABLE, ENOENT, "%s", rt->missing);
    int r = run_files_check(&spec->files, err);
    if (r < 0)
        return r;
    plan.run.limits = spec->limits;
    limits_fill(&plan.run.limits, &rt->limits);
    plan.compile.limits = spec->compile_limits;
    limits_fill(&plan.compile.limits, &rt->compile_limits);
    r = spec->shell != NULL ? plan_shell(&draft, err) : make_plan(&draft, err);
    if (r == 0)
        r = check_limits(&plan, maxima, err);
    if (r < 0)
        return r;
    *ret = take_struct(plan);
    return 0;
}

struct box_need run_plan_need(const struct run_plan *plan)
{
    struct box_need need = limits_need(&plan->run.limits);

    return plan->has_compile ? box_need_larger(need, limits_need(&plan->compile.limits)) : need;
}
