/* SPDX-License-Identifier: Apache-2.0 */

/* See export.h. The label is a stranger's text when it comes back: nothing in it decides what
 * runs, and every member is checked. */

#include "image/export.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/os/fs.h"
#include "base/str.h"
#include "image/recipe.h"
#include "json/read.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define LABEL "hermes.image"

int image_export_parse(
    const char *format, const char *compression, struct image_export *ret, struct err *err)
{
    bool is_docker = str_eq(format, "docker");
    bool is_zstd = str_eq(compression, "zstd");
    if (format && !is_docker && !str_eq(format, "oci"))
        return err_field(err, "format", "format is oci or docker");
    if (compression && !is_zstd && !str_eq(compression, "gzip"))
        return err_field(err, "compression", "compression is gzip or zstd");
    if (is_docker && is_zstd)
        return err_field(err, "compression", "docker archives are not compressed");
    *ret = (struct image_export){
        .kind = is_docker ? OCI_DOCKER : OCI_LAYOUT, .packing = is_zstd ? OCI_ZSTD : OCI_GZIP};
    return 0;
}

static json_t *make_label(const struct image *image)
{
    static const char *const members[] = {"language", "version", "packages", "lock"};
    json_t *label = json_object();
    for (size_t i = 0; i < sizeof(members) / sizeof(members[0]); i++) {
        json_t *value = json_object_get(image->facts, members[i]);
        if (value && !json_is_null(value))
            (void)json_object_set(label, members[i], value);
    }
    cleanup_free char *text = json_dumps(label, JSON_COMPACT | JSON_SORT_KEYS);
    json_decref(label);
    return json_string(text ? text : "");
}

static json_t *make_config(const struct image *image)
{
    const char *key;
    json_t *value;
    json_t *env = json_array();
    json_object_foreach(json_object_get(image->facts, "env"), key, value)
    {
        cleanup_free char *text = xasprintf("%s=%s", key, json_string_value(value));
        (void)json_array_append_new(env, json_string(text));
    }
    json_t *config =
        json_pack("{s:o, s:{s:o}}", "env", env, "labels", LABEL, make_label(image));
    const char *program = json_string_value(json_object_get(image->facts, "program"));
    if (config && program)
        (void)json_object_set_new(config, "cmd", json_pack("[s]", program));
    return config;
}

json_t *export_label_read(const json_t *config)
{
    static const char *const texts[] = {"language", "version", "lock"};
    const char *text =
        json_string_value(json_object_get(json_object_get(config, "labels"), LABEL));
    const char *problem;
    json_t *label = text ? json_read_bounded(text, strlen(text), &problem) : NULL;
    if (!json_is_object(label)) {
        json_decref(label);
        return NULL;
    }
    json_t *read = json_object();
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        json_t *value = json_object_get(label, texts[i]);
        if (json_is_string(value) && json_string_length(value) <= RECIPE_TEXT_MAX)
            (void)json_object_set(read, texts[i], value);
    }
    (void)json_object_set_new(
        read, "packages", image_packages_read(json_object_get(label, "packages")));
    json_decref(label);
    return read;
}

int image_spool_open(struct image_store *store, struct err *err)
{
    int fd = openat(
        image_store_dir(store), "spool", O_TMPFILE | O_RDWR | O_CLOEXEC, S_IRUSR | S_IWUSR);
    return fd < 0 ? image_store_broken(err, -errno, "cannot make a file") : fd;
}

/* Locks the layers, lowest first. */
static int hold_layers(struct image_store *store, const struct image *image, int *fds,
    size_t *ret_count, struct err *err)
{
    const json_t *layers = json_object_get(image->facts, "layers");
    int r = json_array_size(layers) <= SPAWN_MAX_LAYERS ? 0 : -EBADMSG;
    for (size_t i = json_array_size(layers); r == 0 && i-- > 0;) {
        const char *hex = json_string_value(json_array_get(layers, i));
        int fd = hex && strlen(hex) == DIGEST_HEX ? image_store_hold_layer(store, hex, err)
                                                  : -EBADMSG;
        r = fd < 0 ? fd : 0;
        if (fd >= 0)
            fds[(*ret_count)++] = fd;
    }
    return r < 0 && !err->code
               ? err_set(err, ERR_INTERNAL, -r, "the image `%s` is damaged", image->name)
               : r;
}

int image_export(struct image_store *store, const struct image *image,
    const struct image_export *options, layer_sink *write, void *context, struct err *err)
{
    int fds[SPAWN_MAX_LAYERS];
    size_t count = 0;
    cleanup_close int spool =
        fs_open_beneath(image_store_dir(store), "spool", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    json_t *config = make_config(image);
    int r = spool < 0 ? err_set(err, ERR_INTERNAL, -spool, "the image store has no spool: %s",
                            strerror(-spool))
                      : hold_layers(store, image, fds, &count, err);
    if (r == 0)
        r = oci_export(&(struct oci_export){.kind = options->kind,
                           .packing = options->packing,
                           .name = image->name,
                           .config = config,
                           .layer_fds = fds,
                           .layer_count = count,
                           .spool_fd = spool,
                           .cancel_fd = options->cancel_fd},
            write, context, err);
    if (r == -ENOSPC)
        err->code = ERR_NO_SPACE;
    while (count)
        close_fd(&fds[--count]);
    json_decref(config);
    return r;
}
