/* SPDX-License-Identifier: Apache-2.0 */

/* `hermes-prepare table`: see prepare.h. The monitor gives the settings, the control socket of
 * a new spawner and, after the first time, the table of the time before. Nothing is handed over
 * before the spawner has answered the seal. */

#include "prepare/prepare.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/log.h"
#include "image/build.h"
#include "lang/seed.h"
#include "run/engine.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Network namespaces kept ready. Enough for a burst; each costs Linux about 100 KiB. */
enum { NETWORKS_READY = 4, EXIT_FAILED = 125 };

struct task {
    struct config config;
    struct runtime_registry runtimes;
    int fds[FDPASS_MAX]; /* SPAWNED_*, and OLD_* */
    unsigned fd_count;
    char *layers;
    char *incoming;
    char *seeds;
};

static int receive(struct task *t, struct err *err)
{
    cleanup_buf struct buf settings;
    struct strv problems = {0};
    enum handover_kind kind;
    buf_init(&settings, HANDOVER_MAX_TEXT);
    int r = handover_receive(HANDOVER_FD, &kind, t->fds, &t->fd_count);
    if (r <= 0 || kind != HANDOVER_SPAWNED ||
        (t->fd_count != SPAWNED_COUNT && t->fd_count != SPAWNED_WITH_OLD))
        return err_set(err, ERR_INTERNAL, EPROTO,
            "hermes-monitor starts this job; run `hermes serve` instead");
    r = handover_read_text(t->fds[SPAWNED_SETTINGS], &settings);
    if (r == 0)
        r = config_load_text(&t->config, settings.data, settings.len, &problems);
    return r < 0 ? err_set(err, ERR_INTERNAL, -r, "settings: %s",
                       problems.count ? problems.items[0] : strerror(-r))
                 : 0;
}

static struct lang_dirs dirs_of(const struct config *c)
{
    return (struct lang_dirs){.runtimes = c->runtimes,
        .more = c->runtime_dir,
        .state = c->state_dir,
        .seeds = c->seed_dir,
        .home = getenv("HOME")};
}

/* Images need root that may reach the server's files: layers are mounted by the spawner, and
 * unpacked through id-mapped mounts. The files there belong to the server; the spawner follows
 * no link in them. */
static void take_images(struct task *t, struct engine_options *options)
{
    const struct config *c = &t->config;
    if (geteuid() != 0)
        return;
    t->layers = xasprintf("%s/server/images/layers", c->state_dir);
    t->incoming = xasprintf("%s/server/images/incoming", c->state_dir);
    if (access(t->layers, R_OK | X_OK) < 0)
        return;
    options->layers = t->layers;
    options->incoming = t->incoming;
    options->build_maxima =
        image_build_limits(c->build_wall_ms, c->build_memory_mb, c->build_disk_mb);
}

/* Without root there are no id-mapped mounts; the directory belongs to the same user and is
 * writable as it is. */
static void take_seeds(struct task *t, struct engine_options *options)
{
    t->seeds = xasprintf("%s/" SEED_INCOMING, t->config.seed_dir);
    if (!t->config.seed_dir || !t->config.seed_dir[0] || !t->config.seeds)
        return;
    options->seed_incoming = t->seeds;
    for (size_t i = 0; i < t->runtimes.count; i++) {
        const struct runtime *rt = &t->runtimes.items[i];
        const struct run_limits limits = seed_limits(rt);
        if (rt->available && rt->compile.seed.recipe)
            limits_raise(&options->build_maxima, &limits);
    }
}

static void fill_options(struct task *t, struct engine_options *options)
{
    const struct config *c = &t->config;
    *options = (struct engine_options){.runtimes = &t->runtimes,
        .dirs = dirs_of(c),
        .control_fd = t->fds[SPAWNED_CONTROL],
        .min_level = (unsigned)c->min_level,
        .networks = NETWORKS_READY,
        .share_networks = c->share_networks,
        .sessions = true,
        .zygotes = c->warm,
        .park = (unsigned)c->parked,
        .park_free_percent = (unsigned)c->parked_free_percent,
        .session_park = (unsigned)c->session_parked,
        .session_warm = c->session_warm,
        .maxima = c->maxima,
        .processes_total = (uint32_t)c->processes_total,
        .source_count = c->mounts.count};
    take_images(t, options);
    if (options->layers)
        prepare_images(c, &t->runtimes, options);
    take_seeds(t, options);
    if (c->network_max != NETWORK_NONE)
        options->egress_fd = t->fds[SPAWNED_EGRESS];
    for (size_t i = 0; i < c->mounts.count; i++) {
        options->sources[i].path = c->mounts.items[i].path;
        options->sources[i].writable = c->mounts.items[i].writable;
    }
}

/* Says once, in the log, which languages will be missing. */
static void tell_missing(const struct runtime_registry *runtimes)
{
    for (size_t i = 0; i < runtimes->count; i++) {
        if (!runtimes->items[i].available)
            log_event(LOG_INFO, "a language is not available", "language",
                runtimes->items[i].name, "reason", runtimes->items[i].missing, (char *)NULL);
    }
}

static int send_locks(const struct engine *engine)
{
    int fds[HANDOVER_MAX_LOCKS];
    size_t count = engine_root_locks(engine, fds);
    int r = 0;
    for (size_t at = 0; r == 0 && at < count; at += FDPASS_MAX) {
        size_t some = count - at < FDPASS_MAX ? count - at : FDPASS_MAX;
        r = handover_send(HANDOVER_FD, HANDOVER_LOCKS, fds + at, (unsigned)some);
    }
    return r;
}

static bool is_same(int old_fd, const struct buf *text)
{
    cleanup_buf struct buf old;
    buf_init(&old, HANDOVER_MAX_TEXT);
    return handover_read_text(old_fd, &old) == 0 && old.len == text->len &&
           memcmp(old.data, text->data, old.len) == 0;
}

/* Sends the locks first: the monitor uses the spawner as soon as it knows of the seal. */
static int hand_over(const struct task *t, const struct engine *engine)
{
    cleanup_buf struct buf runtimes;
    cleanup_buf struct buf table;
    buf_init(&runtimes, HANDOVER_MAX_TEXT);
    buf_init(&table, HANDOVER_MAX_TEXT);
    int r = runtime_pack(&t->runtimes, &runtimes);
    if (r == 0)
        r = engine_write_table(engine, &table);
    if (r == 0)
        r = send_locks(engine);
    if (r < 0)
        return r;
    if (t->fd_count == SPAWNED_WITH_OLD && is_same(t->fds[OLD_RUNTIMES], &runtimes) &&
        is_same(t->fds[OLD_TABLE], &table))
        return handover_send(HANDOVER_FD, HANDOVER_SEALED, NULL, 0);
    int fds[SEALED_COUNT] = {[SEALED_RUNTIMES] = handover_write_text("runtimes", &runtimes),
        [SEALED_TABLE] = handover_write_text("table", &table)};
    if (fds[SEALED_RUNTIMES] < 0 || fds[SEALED_TABLE] < 0)
        return -ENOMEM;
    tell_missing(&t->runtimes);
    return handover_send(HANDOVER_FD, HANDOVER_SEALED, fds, SEALED_COUNT);
}

int prepare_table(void)
{
    static struct task task; /* the end of the process frees it, and the engine */
    static struct engine *engine;
    struct engine_options options;
    struct err err = {0};
    int r = receive(&task, &err);
    const struct lang_dirs dirs = dirs_of(&task.config);
    if (r == 0)
        r = runtime_load(&task.runtimes, &dirs, NULL, &err);
    if (r == 0)
        r = runtime_load_sdk(&task.runtimes, &err);
    if (r == 0) {
        runtime_find_versions(&task.runtimes, task.config.state_dir);
        fill_options(&task, &options);
        r = engine_open(&engine, &options, &err);
    }
    if (r == 0 && (r = hand_over(&task, engine)) < 0)
        (void)err_set(&err, ERR_INTERNAL, -r, "cannot hand over the table: %s", strerror(-r));
    if (r < 0)
        log_event(LOG_ERROR, "cannot start the spawner", "field", err.field, "reason",
            err.message, (char *)NULL);
    return r < 0 ? EXIT_FAILED : 0;
}
