/* SPDX-License-Identifier: Apache-2.0 */

/* See operator.h. */

#include "image/operator.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/os/fs.h"
#include "base/str.h"
#include "image/build.h"
#include "json/body.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static int read_text(const char *dir, const char *name, struct buf *to, struct err *err)
{
    cleanup_free char *path = name ? xasprintf("%s/%s", dir, name) : xstrdup(dir);
    int r = fs_read_file(AT_FDCWD, path, to);
    return r < 0 ? err_set(err, err_code_of(-r), -r, "cannot read %s: %s", path, strerror(-r))
                 : 0;
}

/* A directory has the lock beside the recipe, as installers write it. */
static int read_recipe(const char *path, json_t **ret, struct err *err)
{
    cleanup_buf struct buf recipe;
    cleanup_buf struct buf lock;
    struct stat st;
    bool is_dir = stat(path, &st) == 0 && S_ISDIR(st.st_mode);
    json_t *body = NULL;
    buf_init(&recipe, RECIPE_TEXT_MAX);
    buf_init(&lock, RECIPE_TEXT_MAX);
    int r = read_text(path, is_dir ? "recipe.json" : NULL, &recipe, err);
    if (r == 0 && is_dir)
        r = read_text(path, "lock.txt", &lock, err);
    if (r == 0)
        r = json_run_parse(recipe.data ? recipe.data : "", recipe.len, &body, err);
    if (r < 0)
        return err_wrap(err, r, "%s", path);
    if (is_dir)
        (void)json_object_set_new(
            body, "lock", json_stringn(lock.data ? lock.data : "", lock.len));
    *ret = body;
    return 0;
}

/* Recipes are shipped beside the languages. */
int image_recipe_open(
    const char *where, const struct runtime_registry *runtimes, json_t **ret, struct err *err)
{
    struct stat st;
    const struct runtime *tool = runtime_find_internal(runtimes, IMAGE_BUILD_TOOL);
    if (strchr(where, '/'))
        return read_recipe(where, ret, err);
    if (!tool || image_name_problem(where))
        return -ENOENT;
    cleanup_free char *path = xasprintf("%s/../../images/%s", tool->dir, where);
    return stat(path, &st) < 0 ? -ENOENT : read_recipe(path, ret, err);
}

const char *image_operator_problem(const struct image_recipe *recipe)
{
    if (!recipe->name)
        return "an image of the operator needs a name";
    if (!image_recipe_is_locked(recipe))
        return "an image of the operator needs a lock, and no setup_script: its code runs in "
               "interpreters that all boxes are copied from";
    return NULL;
}

int image_operator_find(struct image_store *store, const char *where,
    const struct runtime_registry *runtimes, struct image *ret, struct err *err)
{
    static const char *const installers[] = {INSTALLER_UV, INSTALLER_PIP};
    CLEANUP(image_recipe_done) struct image_recipe recipe = {0};
    char digest[DIGEST_HEX + 1];
    json_t *body = NULL;
    int r = image_recipe_open(where, runtimes, &body, err);
    if (r == 0)
        r = image_recipe_decode(body, runtimes, &recipe, err);
    json_decref(body);
    if (r < 0)
        return r;
    const char *why = image_operator_problem(&recipe);
    if (why)
        return err_set(err, ERR_INVALID, EINVAL, "%s: %s", where, why);
    r = -ENOENT; /* the image may have been built with the other installer */
    for (size_t i = 0; r < 0 && i < sizeof(installers) / sizeof(installers[0]); i++) {
        const struct image_registry registry = {"", "", "", "", installers[i]};
        image_recipe_digest(&recipe, &registry, IMAGE_FOR_ALL, digest);
        r = image_store_reuse(store, IMAGE_FOR_ALL, NULL, digest, 0, ret);
    }
    if (r == 0)
        (void)snprintf(ret->name, sizeof(ret->name), "%s", recipe.name);
    return r;
}

json_t *image_operator_pack(const struct image *image)
{
    return json_pack("{s:s, s:s, s:I, s:O}", "id", image->id, "name", image->name, "created_s",
        (json_int_t)image->created_s, "facts", image->facts);
}

int image_operator_unpack(const json_t *json, struct image *ret)
{
    const char *id;
    const char *name;
    json_int_t created_s;
    json_t *facts;
    if (json_unpack((json_t *)json, "{s:s, s:s, s:I, s:o}", "id", &id, "name", &name,
            "created_s", &created_s, "facts", &facts) < 0)
        return -EBADMSG;
    *ret = (struct image){.created_s = created_s, .facts = json_incref(facts)};
    (void)snprintf(ret->id, sizeof(ret->id), "%s", id);
    (void)snprintf(ret->name, sizeof(ret->name), "%s", name);
    (void)snprintf(ret->owner, sizeof(ret->owner), "%s", IMAGE_FOR_ALL);
    return 0;
}
