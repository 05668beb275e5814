/* SPDX-License-Identifier: Apache-2.0 */

/* See packages.h. */

#include "service/packages.h"

#include "base/cleanup.h"
#include "base/str.h"
#include "json/body.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { ATTEMPTS = 4 }; /* to install, when another request changes the session meanwhile */

static int check_fields(const json_t *body, struct err *err)
{
    const char *manager = json_string_value(json_object_get(body, "manager"));
    size_t count = json_array_size(json_object_get(body, "packages"));
    int r = json_known(body, (const char *const[]){"manager", "packages", NULL}, NULL, err);
    if (r < 0)
        return r;
    if (!manager || !(str_eq(manager, "pip") || str_eq(manager, "npm")))
        return err_field(err, "manager", "manager must be pip or npm");
    if (count < 1 || count > RECIPE_PACKAGES_MAX)
        return err_field(
            err, "packages", "packages must be a list of 1 to %d strings", RECIPE_PACKAGES_MAX);
    return 0;
}

static int check_language(const json_t *body, const struct runtime *rt, struct err *err)
{
    if (!image_has_packages(rt))
        return err_set(err, ERR_UNSUPPORTED, ENOSYS,
            "packages can be installed in sessions of python and javascript, not of %s",
            rt->name);
    if (!str_eq(json_string_value(json_object_get(body, "manager")), image_manager(rt)))
        return err_field(err, "manager", "packages of a %s session are installed by %s",
            rt->name, image_manager(rt));
    return 0;
}

int service_packages_decode(
    const json_t *body, const struct session *s, struct image_recipe *ret, struct err *err)
{
    CLEANUP(image_recipe_done) struct image_recipe recipe = {.runtime = session_runtime(s)};
    const json_t *list = json_object_get(body, "packages");
    int r = check_fields(body, err);
    for (size_t i = 0; r == 0 && i < json_array_size(list); i++) {
        char field[32];
        (void)snprintf(field, sizeof(field), "packages[%zu]", i);
        r = image_recipe_add(&recipe, field, json_array_get(list, i), err);
    }
    if (r == 0)
        r = check_language(body, recipe.runtime, err);
    if (r < 0)
        return r;
    *ret = recipe;
    recipe = (struct image_recipe){0};
    return 0;
}

static bool has_package(const json_t *list, const json_t *package)
{
    size_t i;
    json_t *item;
    json_array_foreach((json_t *)list, i, item)
    {
        if (json_equal(item, package))
            return true;
    }
    return false;
}

/* The packages that an image adds to the one below it. */
static json_t *difference(const struct image *image, const json_t *base)
{
    json_t *installed = json_array();
    size_t i;
    json_t *package;
    json_array_foreach(json_object_get(image->facts, "packages"), i, package)
    {
        if (!has_package(json_object_get(base, "packages"), package))
            (void)json_array_append(installed, package);
    }
    return installed;
}

/* Finds the image that is the base of a recipe; "": none. */
static int take_base(struct state *state, int owner, const char *id,
    struct image_recipe *recipe, struct err *err)
{
    CLEANUP(image_done) struct image base = {0};
    run_image_free(recipe->below);
    json_decref(recipe->base);
    recipe->below = NULL;
    recipe->base = NULL;
    if (!id[0])
        return 0;
    int r = service_image_look(state, owner, id, &base, err);
    return r < 0 ? r : image_recipe_build_on(recipe, &base, err);
}

/* Builds a recipe with the image `below` (an id) as its base. *ret_layers stays NULL when that
 * image has all packages. */
static int build_upon(struct state *state, int owner, const char *below,
    struct image_recipe *recipe, const struct service_log *log, struct run_image **ret_layers,
    json_t **ret_installed, struct err *err)
{
    CLEANUP(image_done) struct image image = {0};
    bool is_new;
    int r = take_base(state, owner, below, recipe, err);
    if (r == 0)
        r = service_image_build(state, owner, recipe, log, &image, &is_new, err);
    if (r < 0)
        return r;
    json_t *installed = difference(&image, recipe->base);
    if (json_array_size(installed))
        r = image_for_run(&image, recipe->runtime, ret_layers, err);
    if (r == 0)
        *ret_installed = json_incref(installed);
    json_decref(installed);
    return r;
}

static int install_once(struct state *state, struct session *s, struct image_recipe *recipe,
    const struct service_log *log, json_t **ret, struct err *err)
{
    struct run_image *layers = NULL;
    json_t *installed = NULL;
    char below[sizeof(layers->id)];
    (void)session_image(s, below, sizeof(below));
    int r = build_upon(state, session_owner(s), below, recipe, log, &layers, &installed, err);
    if (layers)
        r = session_add_packages(s, below, layers, log->cancel_fd, err);
    if (r == 0)
        *ret = json_pack("{s:O}", "installed", installed);
    json_decref(installed);
    return r;
}

/* The holder of the session waits for this, so no other thread changes its image meanwhile. */
static int build_for_code(
    struct state *state, struct session *s, struct session_build *build, struct err *err)
{
    CLEANUP(image_recipe_done) struct image_recipe recipe = {0};
    const struct service_log log = {build->log, build->context, build->cancel_fd};
    const struct runtime *rt = session_runtime(s);
    char below[sizeof(build->layers->id)];
    json_t *body = json_pack("{s:s, s:O}", "manager",
        image_has_packages(rt) ? image_manager(rt) : "pip", "packages", build->packages);
    (void)session_image(s, below, sizeof(below));
    int r = service_packages_decode(body, s, &recipe, err);
    json_decref(body);
    return r < 0 ? r
                 : build_upon(state, session_owner(s), below, &recipe, &log, &build->layers,
                       &build->installed, err);
}

void service_packages_open(struct state *state)
{
    sessions_set_builder(state->sessions, build_for_code);
}

int service_packages_install(struct state *state, struct session *s,
    struct image_recipe *recipe, const struct service_log *log, json_t **ret, struct err *err)
{
    int r = session_check(s, err);
    if (r < 0)
        return r;
    session_install_follow(s, log->cancel_fd);
    r = -EAGAIN;
    for (unsigned i = 0; r == -EAGAIN && !err->code && i < ATTEMPTS; i++)
        r = install_once(state, s, recipe, log, ret, err);
    session_install_follow(s, -1);
    if (r == -EAGAIN && !err->code)
        return err_set(err, ERR_CONFLICT, EAGAIN,
            "other packages were installed at the same time; try again");
    if (r == -ECANCELED) { /* the session's end is the better reason */
        struct err gone = {0};
        if (session_check(s, &gone) < 0)
            *err = gone;
    }
    return r;
}

int service_packages_commit(struct state *state, struct session *s, const char *name,
    struct image *ret, struct err *err)
{
    char id[ID_MAX + 64];
    const char *why = image_name_problem(name);
    if (why)
        return err_field(err, "name", "%s", why);
    if (!session_image(s, id, sizeof(id)))
        return err_set(err, ERR_CONFLICT, ENOENT,
            "the session has no packages: install some, or make an image with POST /v1/images");
    return service_image_name(state, session_owner(s), id, name, ret, err);
}

int service_packages_for_run(
    struct state *state, int owner, struct run_spec *spec, int cancel_fd, struct err *err)
{
    CLEANUP(image_recipe_done) struct image_recipe recipe = {0};
    CLEANUP(image_done) struct image image = {0};
    const struct service_log log = {.cancel_fd = cancel_fd};
    bool is_new;
    int r = image_recipe_of_files(spec, &recipe, err);
    if (r == 0 && spec->image)
        r = take_base(state, owner, spec->image->id, &recipe, err);
    if (r == 0)
        r = service_image_build(state, owner, &recipe, &log, &image, &is_new, err);
    if (r < 0)
        return r;
    run_image_free(spec->image);
    spec->image = NULL;
    return image_for_run(&image, spec->runtime, &spec->image, err);
}
