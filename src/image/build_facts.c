/* SPDX-License-Identifier: Apache-2.0 */

/* See build_facts.h. What the build box returned is a stranger's: each file is bounded, and
 * what does not have its form counts as missing. */

#include "image/build_facts.h"

#include "base/str.h"
#include "image/store.h"
#include "json/read.h"

enum {
    PACKAGES_MAX = 4 << 20, /* bytes of packages.json */
    PRELOAD_MB_MAX = 65536, /* of modules that are imported ahead */
};

static json_t *collected_json(const struct run_result *result, const char *name)
{
    const struct run_file *file = run_files_find(&result->files, name);
    const char *problem;
    json_t *json = file && !file->error && file->size <= PACKAGES_MAX
                       ? json_read_bounded(file->content, file->size, &problem)
                       : NULL;
    return json ? json : json_array();
}

static json_t *collected_text(const struct run_result *result, const char *name)
{
    const struct run_file *file = run_files_find(&result->files, name);
    json_t *json = file && !file->error && file->size && file->size <= RECIPE_TEXT_MAX
                       ? json_stringn(file->content, file->size)
                       : NULL;
    return json ? json : json_null();
}

static json_t *packages_of(const struct run_result *result)
{
    json_t *found = collected_json(result, "packages.json");
    json_t *packages = image_packages_read(found);
    json_decref(found);
    return packages;
}

/* The modules to import ahead, and how many MiB an interpreter with them has. Lines that are
 * not a module's name come from a package, and are left out. */
static json_t *preload_of(const struct run_result *result, json_int_t *ret_mb)
{
    json_t *found = collected_json(result, "preload.json");
    const json_t *names = json_object_get(found, "preload");
    json_t *list = json_array();
    for (size_t i = 0; i < json_array_size(names) && i < RECIPE_PRELOAD_MAX; i++) {
        json_t *name = json_array_get(names, i);
        if (image_is_module(json_string_value(name)))
            (void)json_array_append(list, name);
    }
    json_int_t mb = json_integer_value(json_object_get(found, "mb"));
    *ret_mb = mb < 0 || mb > PRELOAD_MB_MAX ? PRELOAD_MB_MAX : mb;
    json_decref(found);
    return list;
}

/* Makes a member of the facts that the image below has, too. */
static json_t *copied_fact(const struct image_recipe *recipe, const char *name, bool is_list)
{
    json_t *value = json_copy(json_object_get(recipe->base, name));
    return value ? value : is_list ? json_array() : json_object();
}

json_t *image_build_facts(const struct image_built *built, const struct run_result *result)
{
    const struct image_recipe *recipe = built->recipe;
    json_int_t mb;
    json_t *preload = preload_of(result, &mb);
    bool is_alone = image_recipe_is_squashed(recipe);
    json_t *layers = is_alone ? json_array() : copied_fact(recipe, "layers", true);
    json_t *env = copied_fact(recipe, "env", false);
    json_int_t below = json_integer_value(json_object_get(recipe->base, "size_bytes"));
    if (built->layer)
        (void)json_array_insert_new(layers, 0, json_string(built->layer));
    if (recipe->env)
        (void)json_object_update(env, recipe->env);
    return json_pack("{s:s, s:s, s:o, s:I, s:o, s:o, s:o, s:s, s:o, s:I}", "language",
        recipe->runtime->name, "version",
        recipe->runtime->version ? recipe->runtime->version : "", "layers", layers,
        "size_bytes", (json_int_t)built->bytes + (is_alone ? 0 : below), "packages",
        packages_of(result), "lock", collected_text(result, "lock.out"), "env", env, "recipe",
        built->digest, "preload", preload, "preload_mb", mb);
}
