/* SPDX-License-Identifier: Apache-2.0 */

/* See build.h. The build box runs on the caller's thread. The unpack box starts on a second
 * thread with the first byte of the tar. */

#include "image/build.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/os/fs.h"
#include "base/str.h"
#include "image/build_facts.h"
#include "image/store_files.h"
#include "network/policy.h"
#include "network/report.h"
#include "run/image_root.h"
#include "json/read.h"

#include <errno.h>
#include <fcntl.h>
#include <nettle/sha2.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    TAIL = 4096,   /* bytes of the log that an error can quote */
    QUOTE = 400,   /* bytes of them that it does */
    WAIT_MS = 100, /* between two looks whether another build has ended */
};

struct building {
    const struct image_builder *b;
    const struct image_recipe *recipe;
    char digest[DIGEST_HEX + 1]; /* of the recipe */
    struct sha256_ctx tar;
    uint64_t bytes;
    int to_unpack; /* the tar is written here; -1: no byte has come */
    int from_build;
    pthread_t thread;
    bool has_thread;
    bool unpack_failed;
    int unpack_result;
    struct err unpack_err;
    double unpack_cpu_ms;
    char unpacked[DIGEST_HEX + 1]; /* SHA-256 of the tar that was unpacked, in plain form */
    uint64_t entries;              /* files and directories that it has made */
    char tail[TAIL];
    size_t tail_len;
    int below[SPAWN_MAX_LAYERS]; /* locks of the layers that it builds upon */
    size_t below_count;
};

struct run_limits image_build_limits(uint64_t wall_ms, uint64_t memory_mb, uint64_t disk_mb)
{
    struct run_limits limits = {.wall_ms = wall_ms,
        .cpu_ms = 2 * wall_ms,
        .memory_mb = memory_mb,
        .processes = 256,
        .open_files = 2048,
        .disk_mb = disk_mb < memory_mb ? disk_mb : memory_mb,
        .output_kb = 16384,
        .cpu_milli = 2000,
        .network_connections = 64,
        .network_mb = 2 * disk_mb};
    limits.file_size_mb = limits.disk_mb;
    limits_fill(&limits, &(struct run_limits){0});
    return limits;
}

struct run_limits image_unpack_limits(const struct run_limits *build)
{
    return (struct run_limits){.wall_ms = build->wall_ms,
        .cpu_ms = build->cpu_ms,
        .memory_mb = 256,
        .processes = 16,
        .open_files = 256,
        .disk_mb = 16,
        .file_size_mb = build->file_size_mb,
        .output_kb = 64,
        .cpu_milli = 1000};
}

uint64_t image_entries_max(uint64_t bytes)
{
    uint64_t most = bytes / IMAGE_ENTRY_BYTES;
    return most < IMAGE_ENTRIES_MAX ? most : IMAGE_ENTRIES_MAX;
}

int image_box_run(const struct image_builder *b, struct run_spec *spec,
    const struct run_variant *variant, const struct run_watch *watch, struct run_result *result,
    struct err *err)
{
    CLEANUP(run_plan_done) struct run_plan plan = {0};
    struct engine_program *program = NULL;
    spec->compile_limits = spec->limits; /* there is no such stage, but they are checked */
    spec->owner = b->owner_number;
    int r = run_plan_make(spec, &spec->limits, &plan, err);
    if (r == 0)
        r = engine_prepare(b->engine, &plan, watch, result, &program, err);
    if (r == 0)
        r = engine_execute(program, variant, watch, result, err);
    engine_program_free(program);
    return r;
}

/* Runs one box with the tool image-build. */
static int run_tool(struct building *w, struct run_spec *spec,
    const struct run_variant *variant, const struct run_watch *watch, struct run_result *result,
    struct err *err)
{
    spec->runtime = w->b->tool;
    spec->is_internal = true;
    return image_box_run(w->b, spec, variant, watch, result, err);
}

static void add_args(struct run_spec *spec, const char *first, uint64_t second, uint64_t third)
{
    strv_add(&spec->args, IMAGE_BUILD_SCRIPT);
    strv_add(&spec->args, first);
    strv_add_owned(&spec->args, xasprintf("%llu", (unsigned long long)second));
    strv_add_owned(&spec->args, xasprintf("%llu", (unsigned long long)third));
}

/* Reads the report of hermes-layer about the tar. */
static int read_report(struct building *w, const struct buf *text, struct err *err)
{
    const char *digest = NULL;
    json_int_t entries = 0;
    json_t *report = json_loadb(text->len ? text->data : "", text->len, 0, NULL);
    bool is_good =
        report &&
        json_unpack(report, "{s:s, s:I}", "diff_id", &digest, "entries", &entries) == 0 &&
        str_has_prefix(digest, "sha256:") && entries >= 0;
    if (is_good) {
        (void)snprintf(w->unpacked, sizeof(w->unpacked), "%s", digest + strlen("sha256:"));
        w->entries = (uint64_t)entries;
    }
    json_decref(report);
    return is_good ? 0
                   : err_set(err, ERR_BUILD_FAILED, EBADMSG,
                         "the layer cannot be unpacked: there is no report about it");
}

static int unpack(struct building *w, struct err *err)
{
    CLEANUP(run_spec_done) struct run_spec spec;
    CLEANUP(run_result_done) struct run_result result;
    const struct run_watch watch = {.cancel_fd = w->b->cancel_fd};
    const struct run_variant variant = {
        .stdin_fd = w->from_build, .box_stdin_fd = -1, .box_stdout_fd = -1};
    run_spec_init(&spec);
    run_result_init(&result, 64 << 10);
    spec.limits = image_unpack_limits(w->b->limits);
    limits_fill(&spec.limits, w->b->limits);
    spec.mount_count = 1;
    spec.mounts[0] = (struct run_mount){
        .source = engine_incoming(w->b->engine), .writable = true, .path = "/mnt/layer"};
    run_files_add(&spec.files, "recipe", xstrdup("unpack"), 6, false);
    uint64_t bytes = w->b->limits->disk_mb << 20;
    add_args(&spec, "unpack", bytes, image_entries_max(bytes));
    int r = run_tool(w, &spec, &variant, &watch, &result, err);
    w->unpack_cpu_ms = result.run.usage.cpu_ms;
    if (r == 0 && result.run.status != RUN_OK)
        r = err_set(err, ERR_BUILD_FAILED, EBADMSG, "the layer cannot be unpacked: %s%.*s",
            result.run.message, (int)(result.run.err.len < QUOTE ? result.run.err.len : QUOTE),
            result.run.err.len ? result.run.err.data : "");
    return r < 0 ? r : read_report(w, &result.run.out, err);
}

static void *unpack_thread(void *context)
{
    struct building *w = context;
    w->unpack_result = unpack(w, &w->unpack_err);
    close_fd(&w->from_build); /* a writer that still writes notices */
    return NULL;
}

static int start_unpacking(struct building *w)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return -errno;
    w->to_unpack = pair[0];
    w->from_build = pair[1];
    int r = pthread_create(&w->thread, NULL, unpack_thread, w);
    w->has_thread = r == 0;
    if (r)
        close_fd(&w->from_build);
    return -r;
}

static void pass_on(struct building *w, const char *data, size_t len)
{
    if (w->to_unpack < 0 && !w->unpack_failed && start_unpacking(w) < 0)
        w->unpack_failed = true;
    sha256_update(&w->tar, len, (const uint8_t *)data);
    w->bytes += len;
    while (len && !w->unpack_failed) {
        ssize_t n = send(w->to_unpack, data, len, MSG_NOSIGNAL);
        if (n < 0 && errno != EINTR)
            w->unpack_failed = true;
        data += n > 0 ? n : 0;
        len -= n > 0 ? (size_t)n : 0;
    }
}

static void keep_tail(struct building *w, const char *data, size_t len)
{
    if (len >= TAIL) {
        data += len - TAIL;
        len = TAIL;
        w->tail_len = 0;
    } else if (w->tail_len + len > TAIL) {
        size_t drop = w->tail_len + len - TAIL;
        memmove(w->tail, w->tail + drop, w->tail_len - drop);
        w->tail_len -= drop;
    }
    memcpy(w->tail + w->tail_len, data, len);
    w->tail_len += len;
}

static void on_output(void *context, enum run_stream stream, const char *data, size_t len)
{
    struct building *w = context;
    if (stream == STREAM_STDOUT) {
        pass_on(w, data, len);
        return;
    }
    keep_tail(w, data, len);
    if (w->b->log)
        w->b->log(w->b->context, data, len);
}

/* Ends the tar and waits until it is unpacked. */
static int finish_unpacking(struct building *w, struct err *err)
{
    if (w->to_unpack >= 0)
        (void)shutdown(w->to_unpack, SHUT_WR);
    if (w->has_thread)
        (void)pthread_join(w->thread, NULL);
    close_fd(&w->to_unpack);
    if (!w->has_thread)
        return err_set(err, ERR_BUILD_FAILED, EBADMSG, "the build made no layer");
    if (w->unpack_result < 0)
        *err = w->unpack_err;
    return w->unpack_result;
}

/* The first line with which an installer reports an error, if it is near the end of the log. */
static const char *last_error(const char *log, size_t len)
{
    static const char word[] = "ERROR: ";
    size_t size = sizeof(word) - 1;
    for (size_t at = len < size ? 0 : len - size; at && len - at < (size_t)3 * QUOTE; at--) {
        if (memcmp(log + at, word, size) == 0 && log[at - 1] == '\n')
            return log + at;
    }
    return NULL;
}

/* The last lines of the log, without a line that is cut; or from the last error on. */
static const char *last_lines(const struct building *w, size_t *ret_len)
{
    size_t len = w->tail_len;
    while (len && w->tail[len - 1] == '\n')
        len--;
    const char *error = last_error(w->tail, len);
    if (error) {
        size_t rest = (size_t)(w->tail + len - error);
        *ret_len = rest < QUOTE ? rest : QUOTE;
        return error;
    }
    size_t from = len > QUOTE ? len - QUOTE : 0;
    const char *line = from ? memchr(w->tail + from, '\n', len - from) : NULL;
    if (line)
        from = (size_t)(line + 1 - w->tail);
    *ret_len = len - from;
    return w->tail + from;
}

static const char *first_denied(const struct network_report *report)
{
    for (size_t i = 0; report && i < report->count; i++) {
        if (!report->rows[i].is_allowed)
            return report->rows[i].host;
    }
    return NULL;
}

/* Whether the log tells of a network that is missing, as the common programs say it. */
static bool wants_network(const struct building *w)
{
    static const char *const words[] = {
        "name resolution", "etwork is unreachable", "EAI_AGAIN", "ENETUNREACH", "resolve host"};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (memmem(w->tail, w->tail_len, words[i], strlen(words[i])))
            return true;
    }
    return false;
}

static int blame_recipe(
    const struct building *w, const struct run_result *result, struct err *err)
{
    size_t len;
    const char *lines = last_lines(w, &len);
    const char *denied = first_denied(result->run.network);
    const char *separator = result->run.message[0] ? ": " : "";
    if (result->run.status == RUN_CANCELLED)
        return err_set(err, ERR_CONFLICT, ECANCELED, "the build was cancelled");
    if (!w->b->registry.hosts[0] && wants_network(w))
        return err_set(err, ERR_BUILD_FAILED, EBADMSG,
            "the build failed: it has no network, because registry_hosts is not set: %.*s",
            (int)len, lines);
    if (denied)
        return err_set(err, ERR_BUILD_FAILED, EBADMSG,
            "the build failed: %s%sthe host %.80s is not among registry_hosts: %.*s",
            result->run.message, separator, denied, (int)len, lines);
    return err_set(err, ERR_BUILD_FAILED, EBADMSG, "the build failed: %s%s%.*s",
        result->run.message, separator, (int)len, lines);
}

static int check_registry(const struct image_builder *b, const struct image_recipe *recipe,
    struct network_policy **ret, struct err *err)
{
    if (!b->registry.hosts[0])
        return image_recipe_needs_registry(recipe)
                   ? err_set(err, ERR_UNSUPPORTED, ENOSYS,
                         "no package registry is configured: set registry_hosts to the hosts "
                         "of the package index and of its files")
                   : 0;
    cleanup_free char *text = xasprintf("allow=%s", b->registry.hosts);
    return network_policy_parse(text, ret, err);
}

/* A layer that changes nothing is dropped. */
static bool is_empty(const struct building *w)
{
    return image_recipe_is_upon(w->recipe) && w->entries == 0;
}

/* Looks for the interpreter again: in a whole root the setup script may have changed it. */
static int add_whole(const struct building *w, json_t *facts, struct err *err)
{
    struct image_kind kind = {0};
    const struct runtime *wanted = w->recipe->runtime;
    int r = image_whole_find(
        w->b, w->b->runtimes, wanted, json_object_get(facts, "layers"), &kind, err);
    if (r < 0)
        return err->code == ERR_INVALID
                   ? err_set(err, ERR_BUILD_FAILED, EBADMSG,
                         "the build failed: the root file system has no %s that runs; install "
                         "it in setup_script, or name another language",
                         wanted->name)
                   : r;
    (void)json_object_set_new(facts, "version", json_string(kind.version));
    (void)json_object_set_new(facts, "program", json_string(kind.program));
    (void)json_object_set_new(facts, "whole_root", json_true());
    return 0;
}

/* Gives the layer its name, then the image. Holds the layer meanwhile: until an image has it,
 * a clean-up takes it for an orphan. */
static int keep(
    struct building *w, const struct run_result *result, struct image *ret, struct err *err)
{
    uint8_t digest[SPAWN_DIGEST];
    char hex[DIGEST_HEX + 1];
    sha256_digest(&w->tar, sizeof(digest), digest);
    str_hex(digest, sizeof(digest), hex);
    if (!str_eq(hex, w->unpacked)) /* the tree on disk would be larger than the counted bytes */
        return err_set(err, ERR_BUILD_FAILED, EBADMSG,
            "the build wrote a layer that is not a plain tar file");
    bool is_upon = image_recipe_is_upon(w->recipe);
    cleanup_close int incoming = fs_open_beneath(image_store_dir(w->b->store),
        is_upon ? "incoming/tree" : "incoming/tree/" IMAGE_PLACE, O_RDONLY | O_DIRECTORY, 0);
    if (incoming < 0)
        return err_set(
            err, ERR_BUILD_FAILED, -incoming, "the build made no layer: /opt is missing");
    w->bytes += w->entries * IMAGE_ENTRY_BYTES;
    cleanup_close int layer =
        is_empty(w) ? -1 : image_store_keep_layer(w->b->store, hex, w->bytes, err);
    if (layer < 0 && !is_empty(w))
        return layer;
    json_t *facts = image_build_facts(&(struct image_built){.recipe = w->recipe,
                                          .digest = w->digest,
                                          .layer = is_empty(w) ? NULL : hex,
                                          .bytes = w->bytes},
        result);
    int r = facts ? image_facts_check(
                        json_object_get(facts, "env"), json_object_get(facts, "packages"), err)
                  : err_set(err, ERR_INTERNAL, ENOMEM, "out of memory");
    if (r == 0 && is_upon)
        r = add_whole(w, facts, err);
    if (r == 0)
        r = image_store_add(
            w->b->store, w->b->owner, w->recipe->name, w->digest, facts, ret, err);
    json_decref(facts);
    if (r < 0) { /* the layer is an orphan now */
        struct image_gone gone;
        struct err ignored = {0};
        close_fd(&layer);
        image_roots_trim(w->b->engine);
        (void)image_store_clean(w->b->store, &(struct image_bounds){0}, NULL, &gone, &ignored);
    }
    return r;
}

int image_make_incoming(const struct image_builder *b, struct err *err)
{
    int dir = image_store_dir(b->store);
    int r = fs_remove_tree(dir, "incoming/tree");
    if (r == -ENOENT)
        r = 0;
    if (r == 0 && mkdirat(dir, "incoming/tree", 0755) < 0)
        r = -errno;
    return r < 0 ? image_store_broken(err, r, "cannot make a directory for a layer") : 0;
}

/* Adds the command of the box. For a build upon a whole root, it first copies that root. */
static void add_words(const struct building *w, struct run_spec *spec)
{
    static const char *const upon[] = {
        "upon", "/" IMAGE_BASE, "/bin/sh", IMAGE_UPON_SCRIPT, NULL};
    static const char *const ordinary[] = {IMAGE_BUILD_SCRIPT, NULL};
    bool is_upon = image_recipe_is_upon(w->recipe);
    for (const char *const *word = is_upon ? upon : ordinary; *word; word++)
        strv_add(&spec->args, *word);
    if (is_upon)
        (void)image_find_program(w->b->tool, IMAGE_UPON_PROGRAM, spec->image);
    else
        strv_add(&spec->args, w->recipe->runtime->name);
}

static int build_in_box(struct building *w, struct image *ret, struct err *err)
{
    static char *wanted[] = {
        (char *)"packages.json", (char *)"lock.out", (char *)"preload.json"};
    const struct strv collect = {.items = wanted, .count = 3};
    const struct run_watch watch = {
        .context = w, .output = on_output, .cancel_fd = w->b->cancel_fd};
    const struct run_variant variant = {.collect = &collect,
        .stdin_fd = -1,
        .box_stdin_fd = -1,
        .box_stdout_fd = -1,
        .stdout_max = w->b->limits->disk_mb << 20,
        .stdout_kept = 1};
    CLEANUP(run_spec_done) struct run_spec spec;
    CLEANUP(run_result_done) struct run_result result;
    run_spec_init(&spec);
    run_result_init(&result, 1 << 20);
    spec.limits = *w->b->limits;
    spec.image = run_image_copy(w->recipe->below);
    image_recipe_files(w->recipe, &w->b->registry, &spec.files);
    add_words(w, &spec);
    int r = check_registry(w->b, w->recipe, &spec.network, err);
    if (r == 0)
        r = image_make_incoming(w->b, err);
    if (r < 0)
        return r;
    r = run_tool(w, &spec, &variant, &watch, &result, err);
    bool is_built = r == 0 && result.run.status == RUN_OK;
    struct err unpack_err = {0};
    int unpacked = finish_unpacking(w, &unpack_err);
    if (w->b->cpu_ms)
        *w->b->cpu_ms += result.run.usage.cpu_ms + w->unpack_cpu_ms;
    if (r == 0 && !is_built)
        r = blame_recipe(w, &result, err);
    if (r == 0 && unpacked < 0) {
        *err = unpack_err;
        r = unpacked;
    }
    if (r == 0)
        r = keep(w, &result, ret, err);
    (void)fs_remove_tree(image_store_dir(w->b->store), "incoming/tree");
    return r;
}

int image_build_turn(struct image_store *store, int cancel_fd, struct err *err)
{
    cleanup_close int fd =
        openat(image_store_dir(store), IMAGE_TURN, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0)
        return image_store_broken(err, -errno, "cannot make a lock");
    while (flock(fd, LOCK_EX | LOCK_NB) < 0) {
        struct pollfd cancel = {.fd = cancel_fd, .events = POLLIN};
        if (poll(&cancel, 1, WAIT_MS) > 0)
            return err_set(err, ERR_CONFLICT, ECANCELED, "the build was cancelled");
    }
    return take_fd(&fd);
}

int image_build_reuse(
    const struct image_builder *builder, const struct image_recipe *recipe, struct image *ret)
{
    uint64_t max_age_s = image_recipe_is_locked(recipe) ? 0 : builder->refresh_s;
    char digest[DIGEST_HEX + 1];
    image_recipe_digest(recipe, &builder->registry, builder->owner, digest);
    return image_store_reuse(
        builder->store, builder->owner, recipe->name, digest, max_age_s, ret);
}

/* Locks the layers of the base image: the new image has them, too, and they must stay until it
 * is kept. Layers of the operator are in another store and stay in any case. */
static void hold_below(struct building *w)
{
    const json_t *layers = json_object_get(w->recipe->base, "layers");
    size_t i;
    json_t *layer;
    json_array_foreach((json_t *)layers, i, layer)
    {
        struct err ignored = {0};
        const char *hex = json_string_value(layer);
        int fd = hex && strlen(hex) == DIGEST_HEX && w->below_count < SPAWN_MAX_LAYERS
                     ? image_store_hold_layer(w->b->store, hex, &ignored)
                     : -ENOENT;
        if (fd >= 0)
            w->below[w->below_count++] = fd;
    }
}

int image_build(const struct image_builder *builder, const struct image_recipe *recipe,
    struct image *ret, bool *ret_is_new, struct err *err)
{
    struct building w = {.b = builder, .recipe = recipe, .to_unpack = -1, .from_build = -1};
    image_recipe_digest(recipe, &builder->registry, builder->owner, w.digest);
    *ret_is_new = false;
    if (image_build_reuse(builder, recipe, ret) == 0)
        return 0;
    if (!engine_has_images(builder->engine))
        return err_set(err, ERR_UNSUPPORTED, ENOSYS,
            "images need root: without it the layers of an image cannot be mounted");
    sha256_init(&w.tar);
    *ret_is_new = true;
    hold_below(&w);
    int r = build_in_box(&w, ret, err);
    while (w.below_count)
        close_fd(&w.below[--w.below_count]);
    return r;
}
