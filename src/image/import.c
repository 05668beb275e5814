/* SPDX-License-Identifier: Apache-2.0 */

/* See import.h. Members of the archive are moved out of the directory that boxes can write to
 * before their digests are compared: a box that has read one layer cannot change the next one.
 */

#include "image/import.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/os/fs.h"
#include "base/str.h"
#include "image/export.h"
#include "image/oci_archive.h"
#include "layer/pack.h"
#include "layer/split.h"
#include "layer/tar.h"
#include "run/image_root.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { TRIES = 50 };

#define MEMBERS "spool/.members"

struct importing {
    const struct image_builder *b;
    const struct image_import *from;
    struct oci_archive *archive;
    struct oci_image image;
    int members_fd;
    uint64_t left;   /* bytes that layers may still take on disk */
    uint64_t end_ms; /* clock_ms(): when all boxes together have had their time */
    uint64_t bytes;  /* that they take on disk */
    json_t *digests; /* of the layers, lowest first */
    int fds[SPAWN_MAX_LAYERS];
    size_t count;
};

/* Sets the error to hermes-layer's message, without the program's name and the newline. */
static int blame_archive(const struct stage_result *run, struct err *err)
{
    static const char who[] = "hermes-layer: ";
    cleanup_free char *text = xstrndup(run->err.len ? run->err.data : "", run->err.len);
    const char *said = str_has_prefix(text, who) ? text + sizeof(who) - 1 : text;
    text[strcspn(text, "\n")] = '\0';
    if (run->status == RUN_CANCELLED)
        return err_set(err, ERR_CONFLICT, ECANCELED, "the import was cancelled");
    if (run->status == RUN_RUNTIME_ERROR && strstr(said, strerror(ENOSPC)))
        return err_set(err, ERR_NO_SPACE, ENOSPC,
            "the disk of the image store is full: %s; remove images, or ask the operator",
            said);
    if (run->status == RUN_RUNTIME_ERROR && run->exit_code == 1)
        return err_set(err, strstr(said, "; the limit is ") ? ERR_TOO_LARGE : ERR_INVALID,
            EINVAL, "the archive is refused: %s", said);
    return err_set(err, run->status == RUN_RUNTIME_ERROR ? ERR_INTERNAL : ERR_INVALID, EIO,
        "the archive cannot be read: %s %s", run->message, said);
}

/* The limits of the next box. An archive can have many layers, and small ones can take long, so
 * all of them have the time of one build together, and the bytes. */
static int next_limits(
    const struct importing *w, struct run_limits *ret, uint64_t *ret_entries, struct err *err)
{
    uint64_t now = clock_ms();
    if (now >= w->end_ms)
        return err_set(err, ERR_INVALID, ETIMEDOUT,
            "the archive takes longer to unpack than the setting build_wall_ms allows");
    *ret = image_unpack_limits(w->b->limits);
    ret->output_kb = SPLIT_LIST_MAX / 1024 + 64;
    limits_fill(ret, w->b->limits);
    ret->wall_ms = w->end_ms - now;
    *ret_entries = image_entries_max(w->left);
    return 0;
}

/* Runs hermes-layer over incoming/tree in a box, with in_fd as its input. */
static int run_layer(
    struct importing *w, const char *verb, int in_fd, struct buf *report, struct err *err)
{
    uint64_t entries = 0;
    CLEANUP(run_spec_done) struct run_spec spec;
    CLEANUP(run_result_done) struct run_result result;
    const struct run_watch watch = {.cancel_fd = w->b->cancel_fd};
    const struct run_variant variant = {
        .stdin_fd = in_fd, .box_stdin_fd = -1, .box_stdout_fd = -1};
    run_spec_init(&spec);
    run_result_init(&result, SPLIT_LIST_MAX + 4096);
    if (lseek(in_fd, 0, SEEK_SET) < 0)
        return err_set(
            err, ERR_INTERNAL, errno, "cannot read the archive: %s", strerror(errno));
    spec.runtime = w->b->tool;
    spec.is_internal = true;
    int r = next_limits(w, &spec.limits, &entries, err);
    if (r < 0)
        return r;
    spec.mount_count = 1;
    spec.mounts[0] = (struct run_mount){
        .source = engine_incoming(w->b->engine), .writable = true, .path = "/mnt/layer"};
    run_files_add(&spec.files, "recipe", xstrdup(verb), strlen(verb), false);
    strv_add(&spec.args, IMAGE_BUILD_SCRIPT);
    strv_add(&spec.args, verb);
    strv_add_owned(&spec.args, xasprintf("%llu", (unsigned long long)w->left));
    strv_add_owned(&spec.args, xasprintf("%llu", (unsigned long long)entries));
    r = image_make_incoming(w->b, err);
    if (r == 0)
        r = image_box_run(w->b, &spec, &variant, &watch, &result, err);
    if (w->b->cpu_ms)
        *w->b->cpu_ms += result.run.usage.cpu_ms;
    if (r == 0 && result.run.status != RUN_OK)
        r = blame_archive(&result.run, err);
    if (r == 0 && report)
        r = buf_append(report, result.run.out.data, result.run.out.len);
    return r;
}

/* Splits the archive into its members, in the directory MEMBERS. */
static int split(struct importing *w, struct err *err)
{
    int dir = image_store_dir(w->b->store);
    cleanup_buf struct buf list;
    buf_init(&list, SPLIT_LIST_MAX + 4096);
    int r = run_layer(w, "split", w->from->archive_fd, &list, err);
    if (r < 0)
        return r;
    r = renameat(dir, "incoming/tree", dir, MEMBERS) < 0 ? -errno : 0;
    w->members_fd =
        r < 0 ? r : fs_open_beneath(dir, MEMBERS, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    if (w->members_fd < 0)
        return image_store_broken(err, w->members_fd, "cannot keep the archive");
    r = oci_archive_open(list.data ? list.data : "", list.len, w->members_fd, &w->archive, err);
    return r < 0 ? r : oci_import(w->archive, w->from->wanted, &w->image, err);
}

static int hash_piece(void *context, const void *data, size_t len)
{
    sha256_update(context, len, data);
    return 0;
}

/* The name of the layer that lies in incoming/tree. The box has ended, so nothing changes it
 * now. */
static int name_layer(struct importing *w, char digest[OCI_DIGEST_LEN + 1], struct err *err)
{
    static const struct strv nothing;
    struct sha256_ctx hash;
    cleanup_close int fd = fs_open_beneath(
        image_store_dir(w->b->store), "incoming/tree", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    if (fd < 0)
        return err_set(err, ERR_INTERNAL, -fd, "the layer is gone: %s", strerror(-fd));
    sha256_init(&hash);
    int r = layer_pack(fd, &nothing, hash_piece, &hash, err);
    if (r == 0)
        oci_digest_end(&hash, digest);
    return r;
}

/* A layer that comes again wins over its lower self, which then adds nothing. */
static void drop_earlier(struct importing *w, const char *hex)
{
    for (size_t i = 0; i < w->count; i++) {
        if (!str_eq(json_string_value(json_array_get(w->digests, i)), hex))
            continue;
        close_fd(&w->fds[i]);
        (void)json_array_remove(w->digests, i);
        memmove(&w->fds[i], &w->fds[i + 1], (w->count - i - 1) * sizeof(w->fds[0]));
        w->count--;
        return;
    }
}

static int keep_layer(struct importing *w, const struct buf *report, struct err *err)
{
    char digest[OCI_DIGEST_LEN + 1];
    json_int_t bytes = 0;
    json_int_t entries = 0;
    json_t *json = json_loadb(report->len ? report->data : "", report->len, 0, NULL);
    bool is_good = json &&
                   json_unpack(json, "{s:I, s:I}", "bytes", &bytes, "entries", &entries) == 0 &&
                   bytes >= 0 && (uint64_t)bytes <= w->left && entries >= 0 &&
                   entries <= IMAGE_ENTRIES_MAX;
    json_decref(json);
    if (!is_good)
        return err_set(err, ERR_INTERNAL, EBADMSG, "there is no report about a layer");
    if (entries == 0) /* many archives have such layers */
        return 0;
    int r = name_layer(w, digest, err);
    if (r < 0)
        return r;
    const char *hex = digest + strlen("sha256:");
    uint64_t size = (uint64_t)bytes + (uint64_t)entries * IMAGE_ENTRY_BYTES;
    drop_earlier(w, hex);
    if (w->count == SPAWN_MAX_LAYERS)
        return err_set(err, ERR_INVALID, E2BIG,
            "the image has more than %d layers; make one of them, as `docker export` does",
            SPAWN_MAX_LAYERS);
    int fd = image_store_keep_layer(w->b->store, hex, size, err);
    if (fd < 0)
        return fd;
    w->left -= size < w->left ? size : w->left;
    w->bytes += size;
    w->fds[w->count++] = fd;
    (void)json_array_append_new(w->digests, json_string(hex));
    return 0;
}

static int unpack(
    struct importing *w, int blob_fd, const struct oci_layer *layer, struct err *err)
{
    cleanup_buf struct buf report;
    buf_init(&report, SPLIT_LIST_MAX + 4096);
    int r = run_layer(w, "unpack", blob_fd, &report, err);
    if (r == 0 && layer)
        r = oci_layer_check(layer, report.len ? report.data : "", report.len, err);
    return r < 0 ? r : keep_layer(w, &report, err);
}

static int unpack_all(struct importing *w, struct err *err)
{
    int r = 0;
    if (w->image.kind == OCI_ROOT_TAR)
        r = unpack(w, w->from->archive_fd, NULL, err);
    for (size_t i = 0; r == 0 && i < w->image.layer_count; i++) {
        cleanup_close int fd = oci_layer_open(w->archive, &w->image.layers[i], err);
        r = fd < 0 ? fd : unpack(w, fd, &w->image.layers[i], err);
    }
    if (r == 0 && !w->count)
        r = err_set(err, ERR_INVALID, EINVAL, "the archive has no file");
    return r;
}

/* Variables of the image, without those that no box may have. */
static json_t *env_of(const json_t *config)
{
    json_t *env = json_object();
    size_t i;
    json_t *item;
    json_array_foreach(json_object_get(config, "env"), i, item)
    {
        const char *text = json_string_value(item);
        const char *equals = text ? strchr(text, '=') : NULL;
        if (!equals || json_object_size(env) >= EXPORT_ENV_MAX)
            continue;
        cleanup_free char *key = xstrndup(text, (size_t)(equals - text));
        if (!run_env_problem(key, equals + 1, strlen(equals + 1)))
            (void)json_object_set_new(env, key, json_string(equals + 1));
    }
    return env;
}

static json_t *reversed(const json_t *list)
{
    json_t *to = json_array();
    for (size_t i = json_array_size(list); i-- > 0;)
        (void)json_array_append(to, json_array_get(list, i));
    return to;
}

static json_t *make_facts(
    struct importing *w, const struct image_kind *kind, json_t *told, json_t *digests)
{
    json_t *packages = json_object_get(told, "packages");
    json_t *lock = json_object_get(told, "lock");
    json_t *facts = json_pack("{s:s, s:s, s:O, s:I, s:o, s:O?, s:O?, s:b}", "language",
        kind->runtime->name, "version", kind->version, "layers", digests, "size_bytes",
        (json_int_t)w->bytes, "env", env_of(w->image.config), "packages", packages, "lock",
        lock, "whole_root", kind->is_whole);
    if (facts && !packages)
        (void)json_object_set_new(facts, "packages", json_array());
    if (facts && kind->is_whole)
        (void)json_object_set_new(facts, "program", json_string(kind->program));
    return facts;
}

static int keep_image(struct importing *w, struct image *ret, struct err *err)
{
    struct image_kind kind = {0};
    char digest[OCI_DIGEST_LEN + 1];
    int fds[SPAWN_MAX_LAYERS];
    json_t *told = export_label_read(w->image.config);
    json_t *digests = reversed(w->digests);
    for (size_t i = 0; i < w->count; i++)
        fds[i] = w->fds[w->count - 1 - i];
    int r = image_kind_find(w->b, w->from, told, fds, digests, &kind, err);
    json_t *facts = r < 0 ? NULL : make_facts(w, &kind, told, digests);
    if (r == 0 && !facts)
        r = err_set(err, ERR_INTERNAL, ENOMEM, "out of memory");
    if (r == 0)
        r = image_facts_check(
            json_object_get(facts, "env"), json_object_get(facts, "packages"), err);
    if (r == 0) { /* the facts take the place of a recipe: equal facts give the same id */
        cleanup_free char *text = json_dumps(facts, JSON_COMPACT | JSON_SORT_KEYS);
        cleanup_free char *whole = xasprintf("import\n%s\n%s", w->b->owner, text ? text : "");
        oci_digest_text(whole, strlen(whole), digest);
        r = image_store_add(w->b->store, w->b->owner, w->from->name, digest + strlen("sha256:"),
            facts, ret, err);
    }
    json_decref(facts);
    json_decref(digests);
    json_decref(told);
    return r;
}

static bool has_layers(const struct importing *w)
{
    for (size_t i = 0; i < json_array_size(w->digests); i++) {
        const char *hex = json_string_value(json_array_get(w->digests, i));
        if (image_store_has_layer(w->b->store, hex))
            return true;
    }
    return false;
}

/* Layers that no image has are orphans. The spawner releases a layer a moment after the
 * order to do so, so a layer that was just tried may still be in use. */
static void remove_layers(const struct importing *w)
{
    struct image_gone gone;
    struct err ignored = {0};
    image_roots_trim(w->b->engine);
    for (int i = 0; i < TRIES && has_layers(w); i++) {
        if (i)
            (void)nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
        (void)image_store_clean(w->b->store, &(struct image_bounds){0}, NULL, &gone, &ignored);
    }
}

/* Removes the temporary files of the import. */
static void finish(struct importing *w, bool has_failed)
{
    int dir = image_store_dir(w->b->store);
    while (w->count)
        close_fd(&w->fds[--w->count]);
    if (has_failed)
        remove_layers(w);
    json_decref(w->digests);
    oci_archive_free(w->archive);
    oci_image_done(&w->image);
    close_fd(&w->members_fd);
    (void)fs_remove_tree(dir, MEMBERS);
    (void)fs_remove_tree(dir, "incoming/tree");
}

int image_import(const struct image_builder *builder, const struct image_import *from,
    struct image *ret, struct err *err)
{
    struct importing w = {.b = builder,
        .from = from,
        .members_fd = -1,
        .left = builder->limits->disk_mb << 20,
        .end_ms = clock_ms() + builder->limits->wall_ms,
        .digests = json_array()};
    if (!engine_has_images(builder->engine))
        return err_set(err, ERR_UNSUPPORTED, ENOSYS,
            "images need root: without it the layers of an image cannot be mounted");
    (void)fs_remove_tree(image_store_dir(builder->store), MEMBERS);
    int r = split(&w, err);
    if (r == 0)
        r = unpack_all(&w, err);
    if (r == 0)
        r = keep_image(&w, ret, err);
    finish(&w, r < 0);
    return r;
}
