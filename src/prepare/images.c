/* SPDX-License-Identifier: Apache-2.0 */

/* Finds the operator's own images for the table (image/operator.h). One that is missing,
 * damaged or too large is logged and left out. */

#include "prepare/prepare.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/log.h"
#include "base/str.h"
#include "image/operator.h"
#include "run/engine.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* OWN_MB: memory of an interpreter beside the memory of its modules. ZYGOTES: one interpreter
 * for runs, one for sessions. */
enum { OWN_MB = 40, ZYGOTES = 2 };

static void tell(const char *where, const char *why)
{
    log_event(LOG_WARN, "an image of operator_images is left out", "image", where, "reason",
        why, (char *)NULL);
}

/* Modules to import ahead, if the budget has room for them. */
static void take_preload(const struct image *image, uint64_t *left_mb, struct strv *to)
{
    const json_t *names = json_object_get(image->facts, "preload");
    json_int_t mb = json_integer_value(json_object_get(image->facts, "preload_mb"));
    uint64_t need = ZYGOTES * ((uint64_t)(mb < 0 ? 0 : mb) + OWN_MB);
    if (!json_array_size(names))
        return;
    if (need > *left_mb) {
        log_event(LOG_WARN, "an image of the operator has no warm interpreter", "image",
            image->name, "reason", "image_warm_mb is too small for it", (char *)NULL);
        return;
    }
    *left_mb -= need;
    for (size_t i = 0; i < json_array_size(names); i++)
        strv_add(to, json_string_value(json_array_get(names, i)));
}

static void take_one(const struct config *c, struct image_store *store, const char *where,
    const struct runtime_registry *runtimes, struct engine_options *options, json_t *list,
    uint64_t *left_mb)
{
    struct engine_image *to = &options->images[options->image_count];
    CLEANUP(image_done) struct image image = {0};
    struct err err = {0};
    int r = image_operator_find(store, where, runtimes, &image, &err);
    if (r == -ENOENT && !err.code) /* not built */
        return;
    const char *language =
        json_string_value(json_object_get(r < 0 ? NULL : image.facts, "language"));
    to->runtime = language ? runtime_find(runtimes, language) : NULL;
    if (r == 0 && (!to->runtime || !to->runtime->available))
        r = err_set(&err, ERR_UNAVAILABLE, ENOENT,
            "its language is not available; see `hermes runtimes`");
    if (r == 0)
        r = image_for_run(&image, to->runtime, &to->image, &err);
    if (r < 0) {
        tell(where, err.message[0] ? err.message : strerror(-r));
        return;
    }
    to->is_default = str_eq(image.name, c->session_image);
    take_preload(&image, left_mb, &to->preload);
    (void)json_array_append_new(list, image_operator_pack(&image));
    options->image_count++;
}

void prepare_images(const struct config *c, const struct runtime_registry *runtimes,
    struct engine_options *options)
{
    cleanup_free char *dir = xasprintf("%s/images", c->state_dir);
    cleanup_free char *words = xstrdup(c->operator_images);
    struct image_store *store = NULL;
    struct err err = {0};
    char *rest = words;
    char *word;
    uint64_t left_mb = c->image_warm_mb;
    if (!words[0] || access(dir, R_OK | X_OK) < 0)
        return;
    if (image_store_open(&store, dir, &err) < 0) {
        tell(dir, err.message);
        return;
    }
    json_t *list = json_array();
    while ((word = strsep(&rest, ",")) && options->image_count < ENGINE_IMAGES_MAX) {
        if (word[0])
            take_one(c, store, word, runtimes, options, list, &left_mb);
    }
    image_store_close(store);
    /* the end of the process frees these */
    options->image_text = json_dumps(list, JSON_COMPACT);
    if (options->image_count)
        options->operator_layers = xasprintf("%s/layers", dir);
    options->image_idle_s = (unsigned)c->image_warm_idle_s;
    json_decref(list);
}
