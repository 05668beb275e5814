/* SPDX-License-Identifier: Apache-2.0 */

/* See recipe.h. Values of a recipe reach the build box as files only; no line of a script is
 * made of them. */

#include "image/recipe.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "proto/package.h"
#include "run/run.h"
#include "json/body.h"

#include <errno.h>
#include <nettle/sha2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Increase when build.sh or the format of layers gives another result for the same recipe. */
enum { BUILDER_VERSION = 2 };

/* A build upon an image with this many layers copies it into one. */
enum { SQUASH_FROM = 12 };
_Static_assert((int)SQUASH_FROM < (int)SPAWN_MAX_LAYERS, "one more fits");

void image_recipe_done(struct image_recipe *recipe)
{
    free(recipe->name);
    strv_done(&recipe->packages);
    free(recipe->requirements);
    free(recipe->lock);
    free(recipe->setup_script);
    free(recipe->base_name);
    json_decref(recipe->env);
    strv_done(&recipe->preload);
    run_image_free(recipe->below);
    json_decref(recipe->base);
    *recipe = (struct image_recipe){0};
}

static int get_text(const json_t *body, const char *field, char **ret, struct err *err)
{
    const json_t *value = json_object_get(body, field);
    if (!value)
        return 0;
    if (!json_is_string(value) || strlen(json_string_value(value)) != json_string_length(value))
        return err_field(err, field, "%s must be a string without NUL", field);
    if (json_string_length(value) > RECIPE_TEXT_MAX)
        return err_field(err, field, "%s has more than %d bytes", field, RECIPE_TEXT_MAX);
    *ret = xstrdup(json_string_value(value));
    return 0;
}

/* An item is one line of requirements.txt, and not an option of the installer. */
static const char *package_problem(const char *text)
{
    if (!text || !text[0] || strlen(text) > 512)
        return "must be a string of 1 to 512 bytes";
    if (text[0] == '-')
        return "must not begin with `-`: options of the installer are not taken here";
    for (const char *p = text; *p; p++) {
        if ((unsigned char)*p < ' ' || *p == 0x7f)
            return "must not contain control characters";
    }
    return NULL;
}

const char *image_installer(bool wants_uv)
{
    return wants_uv && access("/usr/local/lib/hermes/uv/uv", X_OK) == 0 ? INSTALLER_UV
                                                                        : INSTALLER_PIP;
}

bool image_is_built(const struct runtime *runtime)
{
    return runtime->run.image_program || runtime->run.image_env.count;
}

bool image_has_packages(const struct runtime *runtime)
{
    return image_is_built(runtime) && image_manager(runtime);
}

const char *image_manager(const struct runtime *runtime)
{
    static const struct {
        const char *language, *manager;
    } known[] = {{"python", "pip"}, {"javascript", "npm"}, {"bun", "npm"}, {"deno", "npm"}};
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (str_eq(runtime->name, known[i].language))
            return known[i].manager;
    }
    return NULL;
}

int image_recipe_add(
    struct image_recipe *recipe, const char *field, const json_t *package, struct err *err)
{
    const char *text = json_string_value(package);
    const char *why = package_problem(text);
    if (why)
        return err_field(err, field, "%s", why);
    strv_add(&recipe->packages, text);
    return 0;
}

int image_recipe_build_on(
    struct image_recipe *recipe, const struct image *base, struct err *err)
{
    int r = image_for_run(base, recipe->runtime, &recipe->below, err);
    if (r == 0 && recipe->below->is_whole)
        r = err_set(err, ERR_UNSUPPORTED, ENOSYS,
            "packages cannot be added to `%s`, which is a whole root file system: build an "
            "image with it as `base` and a setup_script that installs them",
            base->name);
    if (r == 0)
        recipe->base = json_incref(base->facts);
    return r;
}

int image_recipe_build_upon(
    struct image_recipe *recipe, const struct image *base, struct err *err)
{
    struct run_image *below = xcalloc(1, sizeof(*below));
    const json_t *env = json_object_get(base->facts, "env");
    const char *key;
    json_t *value;
    recipe->below = below;
    if (!json_is_true(json_object_get(base->facts, "whole_root")))
        return err_field(err, "base",
            "`%s` is not a whole root file system, as POST /v1/images/import makes from an "
            "archive with /usr; leave base out to build packages for the server's own %s",
            base->name, recipe->runtime->name);
    if (image_layers_read(json_object_get(base->facts, "layers"), below) < 0)
        return err_set(err, ERR_INTERNAL, EBADMSG, "the image `%s` is damaged", base->name);
    if (below->count == SPAWN_MAX_LAYERS)
        return err_field(err, "base",
            "`%s` has %d layers, and none can be added: export and import it as one layer",
            base->name, SPAWN_MAX_LAYERS);
    (void)snprintf(below->id, sizeof(below->id), "%s", base->id);
    below->is_whole = true;
    json_object_foreach((json_t *)env, key, value)
        strv_add_owned(&below->env, xasprintf("%s=%s", key, json_string_value(value)));
    recipe->base = json_incref(base->facts);
    return 0;
}

bool image_recipe_is_upon(const struct image_recipe *recipe)
{
    return recipe->below && recipe->below->is_whole;
}

bool image_recipe_is_squashed(const struct image_recipe *recipe)
{
    return recipe->below && !recipe->below->is_whole && recipe->below->count >= SQUASH_FROM;
}

static int get_packages(const json_t *body, struct image_recipe *to, struct err *err)
{
    const json_t *packages = json_object_get(body, "packages");
    const char *manager;
    json_t *list;
    if (packages && !json_is_object(packages))
        return err_field(err, "packages", "packages must be an object: {\"pip\": [\"numpy\"]}");
    json_object_foreach((json_t *)packages, manager, list)
    {
        char field[64];
        (void)snprintf(field, sizeof(field), "packages.%.32s", manager);
        if (!str_eq(manager, "pip") && !str_eq(manager, "npm"))
            return err_field(err, field, "unknown manager; there are pip and npm");
        if (!str_eq(manager, image_manager(to->runtime)))
            return err_field(err, field, "packages of %s are installed by %s",
                to->runtime->name, image_manager(to->runtime));
        if (!json_is_array(list) || json_array_size(list) > RECIPE_PACKAGES_MAX)
            return err_field(err, field, "%s must be a list of at most %d strings", field,
                RECIPE_PACKAGES_MAX);
        for (size_t i = 0; i < json_array_size(list); i++) {
            (void)snprintf(field, sizeof(field), "packages.%.32s[%zu]", manager, i);
            int r = image_recipe_add(to, field, json_array_get(list, i), err);
            if (r < 0)
                return r;
        }
    }
    return 0;
}

static int get_env(const json_t *body, struct image_recipe *to, struct err *err)
{
    json_t *env = json_object_get(body, "env");
    const char *key;
    json_t *value;
    if (!env)
        return 0;
    if (!json_is_object(env) || json_object_size(env) > PACKAGE_MAX_ENV)
        return err_field(
            err, "env", "env must be an object of at most %d strings", PACKAGE_MAX_ENV);
    json_object_foreach(env, key, value)
    {
        char field[96];
        (void)snprintf(field, sizeof(field), "env.%.64s", key);
        const char *why =
            !json_is_string(value)
                ? "must be a string"
                : run_env_problem(key, json_string_value(value), json_string_length(value));
        if (why)
            return err_field(err, field, "%s", why);
    }
    to->env = json_incref(env);
    return image_facts_check(env, NULL, err);
}

bool image_is_module(const char *text)
{
    size_t len = text ? strlen(text) : 0;
    for (size_t i = 0; i < len; i++) {
        char c = text[i];
        bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
        bool is_first = i == 0 || text[i - 1] == '.';
        if (!is_letter && (is_first || ((c < '0' || c > '9') && c != '.')))
            return false;
    }
    return len > 0 && len <= 128 && text[len - 1] != '.';
}

static int get_preload(const json_t *body, struct image_recipe *to, struct err *err)
{
    const json_t *list = json_object_get(body, "preload");
    if (!list)
        return 0;
    if (!str_eq(image_manager(to->runtime), "pip"))
        return err_field(err, "preload", "only images of python import modules ahead");
    if (!json_is_array(list) || json_array_size(list) > RECIPE_PRELOAD_MAX)
        return err_field(
            err, "preload", "preload must be a list of at most %d modules", RECIPE_PRELOAD_MAX);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *text = json_string_value(json_array_get(list, i));
        char field[32];
        (void)snprintf(field, sizeof(field), "preload[%zu]", i);
        if (!image_is_module(text))
            return err_field(
                err, field, "must be the name of a module, such as `matplotlib.pyplot`");
        strv_add(&to->preload, text);
    }
    return 0;
}

static int get_name(const json_t *body, struct image_recipe *to, struct err *err)
{
    int r = get_text(body, "name", &to->name, err);
    const char *why = r == 0 && to->name ? image_name_problem(to->name) : NULL;
    return why ? err_field(err, "name", "%s", why) : r;
}

static int get_language(const json_t *body, const struct runtime_registry *runtimes,
    struct image_recipe *to, struct err *err)
{
    const char *name = json_string_value(json_object_get(body, "language"));
    if (!name)
        return err_field(err, "language", "language is missing: python or javascript");
    to->runtime = runtime_find(runtimes, name);
    if (!to->runtime)
        return err_field(
            err, "language", "unknown language `%.64s`; GET /v1/runtimes lists them", name);
    if (!to->runtime->run.has_images)
        return err_field(
            err, "language", "language `%s` does not support images", to->runtime->name);
    if (to->base_name && !to->runtime->run.image_programs.count)
        return err_field(
            err, "language", "%s cannot run in a whole root file system", to->runtime->name);
    if (!to->base_name && !image_is_built(to->runtime))
        return err_field(err, "language",
            "images of %s are imported, or built upon an imported one, which `base` names",
            to->runtime->name);
    if (!to->runtime->available)
        return err_set(err, ERR_UNAVAILABLE, ENOENT, "%s", to->runtime->missing);
    return 0;
}

/* A whole root has installers of its own, and its setup script calls them. Languages without
 * lists of packages (go, rust) have only a setup script, too. */
static int check_setup(const json_t *body, const struct image_recipe *recipe, struct err *err)
{
    static const char *const others[] = {"packages", "requirements", "lock", "preload"};
    const char *name = recipe->runtime->name;
    bool is_upon = recipe->base_name;
    if (!is_upon && image_manager(recipe->runtime))
        return 0;
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        if (json_object_get(body, others[i]) && is_upon)
            return err_field(err, others[i],
                "%s cannot be given with base: install them in setup_script, for example by "
                "`pip install`, `npm install -g` or `apt-get install` of the base",
                others[i]);
        if (json_object_get(body, others[i]))
            return err_field(err, others[i],
                "%s cannot be given for %s: install them in setup_script, for example by "
                "`go mod download` or `cargo fetch`",
                others[i], name);
    }
    if (!recipe->setup_script)
        return err_field(err, "setup_script", "setup_script is missing: what is to be done%s",
            is_upon ? " upon the base" : "");
    return 0;
}

static int check_whole(const struct image_recipe *recipe, struct err *err)
{
    if (recipe->packages.count && recipe->requirements)
        return err_field(err, "requirements",
            "packages and requirements exclude each other; put all into one of them");
    if (recipe->lock && str_eq(image_manager(recipe->runtime), "pip") &&
        (recipe->packages.count || recipe->requirements))
        return err_field(err, "lock", "a lock names all packages; leave the others out");
    if (recipe->lock && str_eq(image_manager(recipe->runtime), "npm") && !recipe->requirements)
        return err_field(err, "lock",
            "a package-lock.json needs its package.json: give that as requirements");
    if (!recipe->packages.count && !recipe->requirements && !recipe->lock &&
        !recipe->setup_script)
        return err_field(err, "packages",
            "there is nothing to install: give packages, requirements, lock or setup_script");
    return 0;
}

int image_recipe_decode(const json_t *body, const struct runtime_registry *runtimes,
    struct image_recipe *ret, struct err *err)
{
    CLEANUP(image_recipe_done) struct image_recipe recipe = {0};
    static const char *const known[] = {"name", "language", "packages", "requirements", "lock",
        "setup_script", "env", "preload", "base", NULL};
    int r = json_known(body, known, NULL, err);
    if (r < 0 || (r = get_text(body, "base", &recipe.base_name, err)) < 0 ||
        (r = get_language(body, runtimes, &recipe, err)) < 0 ||
        (r = get_name(body, &recipe, err)) < 0 ||
        (r = get_text(body, "setup_script", &recipe.setup_script, err)) < 0 ||
        (r = check_setup(body, &recipe, err)) < 0 ||
        (r = get_packages(body, &recipe, err)) < 0 ||
        (r = get_text(body, "requirements", &recipe.requirements, err)) < 0 ||
        (r = get_text(body, "lock", &recipe.lock, err)) < 0 ||
        (r = get_env(body, &recipe, err)) < 0 || (r = get_preload(body, &recipe, err)) < 0 ||
        (r = check_whole(&recipe, err)) < 0)
        return r;
    *ret = recipe;
    recipe = (struct image_recipe){0};
    return 0;
}

int image_recipe_of_files(
    const struct run_spec *spec, struct image_recipe *ret, struct err *err)
{
    const struct runtime *rt = spec->runtime;
    if (!image_has_packages(rt))
        return err_field(err, "install",
            "packages can be installed for python and javascript, not for %s", rt->name);
    const char *name = str_eq(image_manager(rt), "pip") ? "requirements.txt" : "package.json";
    const struct run_file *file = run_files_find(&spec->files, name);
    if (!file || !file->size || memchr(file->content, 0, file->size))
        return err_field(err, "install",
            "there is nothing to install: give a text file %s among `files`", name);
    if (file->size > RECIPE_TEXT_MAX)
        return err_field(err, "install", "%s has more than %d bytes", name, RECIPE_TEXT_MAX);
    *ret = (struct image_recipe){
        .runtime = rt, .requirements = xstrndup(file->content, file->size)};
    return 0;
}

static int compare_texts(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void hash_text(struct sha256_ctx *ctx, const char *text)
{
    text = text ? text : "";
    sha256_update(ctx, strlen(text) + 1, (const uint8_t *)text);
}

void image_recipe_digest(const struct image_recipe *recipe,
    const struct image_registry *registry, const char *owner, char ret[DIGEST_HEX + 1])
{
    struct sha256_ctx ctx;
    uint8_t digest[SPAWN_DIGEST];
    char version[16];
    cleanup_free char *env =
        recipe->env ? json_dumps(recipe->env, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    (void)snprintf(version, sizeof(version), "%d", BUILDER_VERSION);
    /* A lock has the hashes of all files: it does not matter where they come from. */
    bool is_locked = image_recipe_is_locked(recipe);
    /* pip and uv leave different bytes, so uv is part of the digest. pip is not, so its digests
     * do not depend on uv. */
    bool is_uv = str_eq(image_manager(recipe->runtime), "pip") &&
                 str_eq(registry->installer, INSTALLER_UV);
    const char *const texts[] = {version, owner, recipe->runtime->name,
        recipe->runtime->version, recipe->requirements, recipe->lock, recipe->setup_script, env,
        is_locked ? NULL : registry->pip_index, is_locked ? NULL : registry->npm_registry};
    sha256_init(&ctx);
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        hash_text(&ctx, texts[i]);
    CLEANUP(strv_done) struct strv sorted = {0};
    strv_add_all(&sorted, &recipe->packages);
    if (sorted.count)
        qsort(sorted.items, sorted.count, sizeof(sorted.items[0]), compare_texts);
    for (size_t i = 0; i < sorted.count; i++)
        hash_text(&ctx, sorted.items[i]);
    if (is_uv)
        hash_text(&ctx, "\n" INSTALLER_UV); /* a separator: no package has a newline in its
                                             * name */
    hash_text(&ctx, recipe->preload.count ? "preload" : NULL);
    for (size_t i = 0; i < recipe->preload.count; i++)
        hash_text(&ctx, recipe->preload.items[i]);
    if (recipe->below) {
        hash_text(&ctx, "");
        sha256_update(&ctx, recipe->below->count * sizeof(recipe->below->layers[0]),
            recipe->below->layers[0]);
        for (size_t i = 0; recipe->below->is_whole && i < recipe->below->env.count; i++)
            hash_text(&ctx, recipe->below->env.items[i]);
    }
    sha256_digest(&ctx, sizeof(digest), digest);
    str_hex(digest, sizeof(digest), ret);
}

bool image_recipe_is_locked(const struct image_recipe *recipe)
{
    return recipe->lock && !recipe->setup_script;
}

bool image_recipe_needs_registry(const struct image_recipe *recipe)
{
    return recipe->packages.count || recipe->requirements || recipe->lock;
}

static void add_file(struct run_files *to, const char *name, const char *text)
{
    if (text && text[0])
        run_files_add(to, name, xstrdup(text), strlen(text), false);
}

/* "left-pad@1.3.0" and "@scope/name@^2" as dependencies of a package.json. */
static char *package_json(const struct strv *packages)
{
    json_t *dependencies = json_object();
    for (size_t i = 0; i < packages->count; i++) {
        cleanup_free char *name = xstrdup(packages->items[i]);
        char *at = strrchr(name, '@');
        bool has_version = at && at != name;
        if (has_version)
            *at = '\0';
        (void)json_object_set_new(
            dependencies, name, json_string(has_version && at[1] ? at + 1 : "*"));
    }
    json_t *whole = json_pack("{s:b, s:o}", "private", 1, "dependencies", dependencies);
    char *text = json_dumps(whole, JSON_COMPACT | JSON_SORT_KEYS);
    json_decref(whole);
    return text;
}

static char *joined_lines(const struct strv *lines)
{
    cleanup_free char *text = str_join((const char *const *)lines->items, lines->count, "\n");
    return xasprintf("%s\n", text);
}

void image_recipe_files(const struct image_recipe *recipe,
    const struct image_registry *registry, struct run_files *to)
{
    bool is_pip = str_eq(image_manager(recipe->runtime), "pip");
    cleanup_free char *listed = !recipe->packages.count ? NULL
                                : is_pip                ? joined_lines(&recipe->packages)
                                                        : package_json(&recipe->packages);
    const char *wanted = recipe->requirements ? recipe->requirements : listed;
    add_file(to, "recipe", recipe->runtime->name); /* there is always one file */
    add_file(to, is_pip ? "requirements.txt" : "package.json", wanted);
    add_file(to, is_pip ? "lock.txt" : "package-lock.json", recipe->lock);
    add_file(to, "setup.sh", recipe->setup_script);
    cleanup_free char *preload = recipe->preload.count ? joined_lines(&recipe->preload) : NULL;
    add_file(to, "preload", preload);
    add_file(to, "pip_index", registry->pip_index);
    add_file(to, "npm_registry", registry->npm_registry);
    add_file(to, "installer", registry->installer);
    add_file(to, "ca.pem", registry->ca);
    add_file(to, "base_lock", json_string_value(json_object_get(recipe->base, "lock")));
    if (image_recipe_is_squashed(recipe))
        add_file(to, "squash", "1");
}
