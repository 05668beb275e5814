/* SPDX-License-Identifier: Apache-2.0 */

/* Images in requests and answers (image/store.h). */

#include "image/store.h"

#include "base/alloc.h"
#include "base/str.h"
#include "lang/runtime.h"
#include "run/encode.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PACKAGES_MAX = 2000 }; /* of one image */

static const char *fact(const struct image *image, const char *name)
{
    const char *text = json_string_value(json_object_get(image->facts, name));
    return text ? text : "";
}

static int hex_value(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool read_digest(const char *hex, uint8_t to[SPAWN_DIGEST])
{
    if (!hex || strlen(hex) != DIGEST_HEX)
        return false;
    for (size_t i = 0; i < SPAWN_DIGEST; i++) {
        int high = hex_value(hex[2 * i]);
        int low = hex_value(hex[2 * i + 1]);
        if (high < 0 || low < 0)
            return false;
        to[i] = (uint8_t)(high << 4 | low);
    }
    return true;
}

/* "Python 3.11.2" fits "Python 3.11.9": packages are made for the first two numbers. */
static bool version_fits(const char *made_for, const char *now)
{
    if (!made_for[0] || !now)
        return true;
    const char *dot = strchr(made_for, '.');
    const char *second = dot ? strchr(dot + 1, '.') : NULL;
    size_t len = second ? (size_t)(second - made_for) : strlen(made_for);
    return strncmp(made_for, now, len) == 0 && (now[len] == '.' || now[len] == '\0');
}

int image_layers_read(const json_t *layers, struct run_image *to)
{
    size_t count = json_array_size(layers);
    if (count < 1 || count > SPAWN_MAX_LAYERS)
        return -EBADMSG;
    for (size_t i = 0; i < count; i++) {
        if (!read_digest(json_string_value(json_array_get(layers, i)), to->layers[i]))
            return -EBADMSG;
    }
    to->count = (uint32_t)count;
    return 0;
}

bool image_find_program(
    const struct runtime *runtime, const char *program, struct run_image *to)
{
    const struct strv *first = &runtime->run_root.execs;
    const struct strv *more = &runtime->run.image_programs;
    (void)snprintf(to->program, sizeof(to->program), "%s", program);
    if (first->count && str_eq(first->items[0], program)) {
        to->exec = 0;
        return true;
    }
    for (size_t i = 0; i < more->count; i++) {
        to->exec = (uint32_t)(first->count + i);
        if (str_eq(more->items[i], program))
            return true;
    }
    return false;
}

int image_for_run(const struct image *image, const struct runtime *runtime,
    struct run_image **ret, struct err *err)
{
    const json_t *layers = json_object_get(image->facts, "layers");
    const char *key;
    json_t *value;
    if (!str_eq(fact(image, "language"), runtime->name))
        return err_field(err, "image", "the image `%s` is for %s, not for %s", image->name,
            fact(image, "language"), runtime->name);
    bool is_whole = json_is_true(json_object_get(image->facts, "whole_root"));
    if (!is_whole && !version_fits(fact(image, "version"), runtime->version))
        return err_set(err, ERR_CONFLICT, ESTALE,
            "the image `%s` was made for %s and this host has %s; build it again", image->name,
            fact(image, "version"), runtime->version);
    struct run_image *to = xcalloc(1, sizeof(*to));
    (void)snprintf(to->id, sizeof(to->id), "%s", image->id);
    to->is_whole = is_whole;
    bool is_good = image_layers_read(layers, to) == 0 &&
                   (!is_whole || image_find_program(runtime, fact(image, "program"), to));
    json_object_foreach(json_object_get(image->facts, "env"), key, value)
        strv_add_owned(&to->env, xasprintf("%s=%s", key, json_string_value(value)));
    size_t i;
    json_array_foreach(json_object_get(image->facts, "preload"), i, value)
    {
        if (json_is_string(value))
            strv_add(&to->preload, json_string_value(value));
    }
    json_int_t mb = json_integer_value(json_object_get(image->facts, "preload_mb"));
    to->preload_mb = mb > 0 ? (uint64_t)mb : 0;
    if (!is_good) {
        run_image_free(to);
        return err_set(err, ERR_INTERNAL, EBADMSG, "the image `%s` is damaged; build it again",
            image->name);
    }
    *ret = to;
    return 0;
}

/* People and programs see these on terminals and in logs. */
static bool is_plain(const char *text, size_t max)
{
    size_t len = 0;
    while (text[len] >= ' ' && text[len] <= '~')
        len++;
    return len && !text[len] && len <= max;
}

json_t *image_packages_read(const json_t *from)
{
    json_t *packages = json_array();
    for (size_t i = 0; i < json_array_size(from) && i < PACKAGES_MAX; i++) {
        const char *name = NULL;
        const char *version = NULL;
        if (json_unpack(json_array_get(from, i), "{s:s, s:s}", "name", &name, "version",
                &version) == 0 &&
            is_plain(name, 256) && is_plain(version, 128))
            (void)json_array_append_new(
                packages, json_pack("{s:s, s:s}", "name", name, "version", version));
    }
    return packages;
}

int image_facts_check(const json_t *env, const json_t *packages, struct err *err)
{
    size_t size = json_dumpb(env, NULL, 0, 0) + json_dumpb(packages, NULL, 0, 0);
    return size <= (size_t)IMAGE_FACTS_KB << 10
               ? 0
               : err_set(err, ERR_TOO_LARGE, EFBIG,
                     "the variables and packages of the image have more than %d KiB as JSON; "
                     "leave some out",
                     IMAGE_FACTS_KB);
}

json_t *image_json(const struct image *image)
{
    bool is_named = !str_eq(image->name, image->id);
    bool is_for_all = str_eq(image->owner, IMAGE_FOR_ALL);
    json_t *json = json_pack("{s:s, s:s?, s:s, s:s?, s:o, s:s?, s:b}", "id", image->id, "name",
        is_named ? image->name : NULL, "language", fact(image, "language"), "version",
        fact(image, "version")[0] ? fact(image, "version") : NULL, "created_at",
        result_time_json(image->created_s), "owner", is_for_all ? NULL : image->owner, "warm",
        0);
    static const char *const copied[] = {"layers", "size_bytes", "packages", "lock", "env"};
    if (json)
        (void)json_object_set_new(json, "whole_root",
            json_boolean(json_is_true(json_object_get(image->facts, "whole_root"))));
    for (size_t i = 0; json && i < sizeof(copied) / sizeof(copied[0]); i++) {
        json_t *value = json_object_get(image->facts, copied[i]);
        (void)json_object_set_new(json, copied[i], value ? json_incref(value) : json_null());
    }
    json_t *preload = json_object_get(image->facts, "preload");
    (void)json_object_set_new(json, "preload", preload ? json_incref(preload) : json_array());
    return json;
}
