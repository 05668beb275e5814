/* SPDX-License-Identifier: Apache-2.0 */

/* See service.h. Opens and closes the parts of a server, and does its work of twice a
 * second. */

#include "service/service.h"

#include "approval/connect.h"
#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/os/fs.h"
#include "base/os/machine.h"
#include "service/approvals.h"
#include "service/calibrate.h"
#include "service/image.h"
#include "service/later.h"
#include "service/packages.h"
#include "service/seeds.h"
#include "service/templates.h"
#include "session/session.h"
#include "state/memory_plan.h"
#include "store/run_store.h"

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    MEMORY_SHARE = 80,    /* percent of the machine's memory that is promised to boxes */
    SESSION_SHARE = 75,   /* percent of that for sessions */
    PROCESSES_SHARE = 50, /* percent of the machine's processes for boxes */
    SPILLS_SHARE = 4, /* times history_max: disk for outputs that do not fit into an answer */
    TRIM_BYTES = 32 << 20, /* bytes freed in the ledger after which the heap is trimmed */
};

static int open_history(struct state *s, uint64_t memory_bytes, struct err *err)
{
    if (s->config.history == HISTORY_SQLITE) {
        cleanup_free char *path = xasprintf("%s/history.db", s->config.state_dir);
        int r = run_store_open(&s->store, path, err);
        if (r < 0)
            return r;
    }
    s->history = history_new(&(struct history_options){.store = s->store,
        .ledger = s->ledger,
        .ttl_ms = s->config.result_ttl_s * 1000,
        .max_bytes = s->config.history_max,
        .memory_bytes = memory_bytes,
        .resume_grace_ms = s->config.resume_grace_s * 1000});
    return 0;
}

/* Lowers the limits of runtimes to the maxima of the operator and to the largest box of one
 * key. */
static void cap_runtimes(struct state *s)
{
    struct run_limits *maxima = &s->config.maxima;
    const struct box_need largest = admit_largest_box(s->admit);
    if (maxima->memory_mb > largest.memory_mb)
        maxima->memory_mb = largest.memory_mb;
    if (maxima->disk_mb > largest.memory_mb)
        maxima->disk_mb = largest.memory_mb;
    if (maxima->processes > largest.processes)
        maxima->processes = largest.processes;
    for (size_t i = 0; i < s->runtimes.count; i++) {
        limits_cap(&s->runtimes.items[i].limits, &s->config.maxima);
        limits_cap(&s->runtimes.items[i].compile_limits, &s->config.maxima);
    }
}

static enum run_status calibrate(struct later *later, struct answer **ret_answer)
{
    calibrate_warm(later->state->engine, &later->state->stopping);
    return RUN_OK;
}

static void free_calibration(struct later *later)
{
    free(later);
}

/* Calibrates on a thread of its own. The memory of the calibration is not counted in the
 * ledger: no client asked for it. Without the thread, warm runs report a little less memory. */
static void start_calibration(struct state *s)
{
    struct err err = {0};
    struct later *later = xcalloc(1, sizeof(*later));
    *later =
        (struct later){.state = s, .owner = -1, .work = calibrate, .free = free_calibration};
    if (later_start(later, NULL, &err) < 0)
        later_free(later);
}

static struct memory_plan plan_memory(struct state *s, uint64_t memory_mb)
{
    s->config.memory_mb = memory_mb;
    struct memory_plan plan = memory_plan_make(&s->config);
    s->ledger = ledger_new(plan.held_bytes, s->keys.count);
    s->spills = ledger_new(SPILLS_SHARE * s->config.history_max, s->keys.count);
    s->memory_max = plan.limit_mb << 20;
    return plan;
}

static void complain(void *context, const char *key, const char *why)
{
    (void)err_set(context, ERR_INTERNAL, EINVAL, "%s: %s", key, why);
}

/* Does not fail in practice: hermes-prepare has checked the same settings. */
static int read_ceiling(struct state *s, struct err *err)
{
    struct network_settings settings;
    config_network(&s->config, &settings);
    return network_ceiling_make(&settings, &s->ceiling, complain, err);
}

int service_open(struct state *state, struct err *err)
{
    const struct config *c = &state->config;
    uint64_t memory_mb = c->memory_mb ? c->memory_mb : machine_memory_mb() * MEMORY_SHARE / 100;
    unsigned cores = machine_cores();
    struct admit_options options = {.keys = &state->keys,
        .concurrency = c->concurrency ? (uint32_t)c->concurrency
                       : cores < 2    ? 4
                                      : cores * 2,
        .queue = (uint32_t)c->queue,
        .wait_ms = (uint32_t)(c->queue_wait_s * 1000),
        .memory_mb = memory_mb,
        .reserve_mb =
            c->session_memory_mb ? c->session_memory_mb : memory_mb * SESSION_SHARE / 100,
        .processes = c->processes_total ? c->processes_total
                                        : machine_processes() * PROCESSES_SHARE / 100,
        .sessions = (uint32_t)c->max_sessions,
        .sessions_per_key = (uint32_t)c->max_sessions_per_key};
    state->started_ms = clock_ms();
    board_open(&state->board);
    struct memory_plan plan = plan_memory(state, memory_mb);
    state->admit = admit_new(&options);
    cap_runtimes(state);
    state->sessions = sessions_new(state);
    service_packages_open(state);
    int r = read_ceiling(state, err);
    if (r == 0)
        r = service_images_open(state, err);
    if (r == 0)
        r = open_history(state, plan.history_bytes, err);
    if (r == 0)
        r = service_open_approvals(state, err);
    if (r == 0 && state->engine)
        state->asks = connect_asks_open(state->approvals, engine_network_hub(state->engine));
    if (r == 0)
        service_seeds_open(state);
    if (r == 0)
        service_templates_open(state);
    if (r == 0 && c->warm)
        start_calibration(state);
    return r;
}

void service_close(struct state *state)
{
    /* Background threads use all of this, so nothing is freed while one is left. */
    for (int i = 0; state->background && i < 1000; i++)
        (void)poll(NULL, 0, 10);
    if (state->background)
        return;
    service_templates_close(state);
    sessions_free(state->sessions);
    connect_asks_close(state->asks);
    approvals_close(state->approvals);
    run_store_close(state->store);
    history_free(state->history);
    ledger_free(state->ledger);
    ledger_free(state->spills);
    admit_free(state->admit);
    board_close(&state->board);
    service_images_close(state);
    service_seeds_close(state);
    engine_leave(state->engine);
    runtime_registry_done(&state->runtimes);
    free(state->cases_dir);
    run_files_done(&state->trust);
    keys_done(&state->keys);
    config_done(&state->config);
}

/* A second line of defence in case the ledger counts too little: when the server uses more than
 * seven eighths of its memory limit, the ledger refuses requests, before the kernel kills the
 * server. After large answers the heap returns free memory. */
static void watch_memory(struct state *s)
{
    char text[128];
    char *rest;
    uint64_t resident = 0;
    size_t peak = ledger_peak(s->ledger);
    if (fs_read_small(AT_FDCWD, "/proc/self/statm", text, sizeof(text)) > 0) {
        (void)strtoull(text, &rest, 10); /* skips the size of the address space */
        resident = strtoull(rest, NULL, 10) * (uint64_t)sysconf(_SC_PAGESIZE);
    }
    bool is_large = resident > s->memory_max / 8 * 7;
    if (is_large || peak > ledger_sum(s->ledger) + TRIM_BYTES)
        (void)malloc_trim(0);
    ledger_shut(s->ledger, is_large);
}

void service_tick(struct state *state)
{
    char why[128];
    watch_memory(state);
    history_tick(state->history);
    admit_tick(state->admit);
    sessions_tick(state->sessions);
    approvals_tick(state->approvals);
    service_seeds_tick(state);
    service_templates_tick(state);
    service_images_tick(state);
    if (!state->store)
        return;
    uint64_t failures = run_store_failures(state->store, why, sizeof(why));
    if (failures != state->store_failures)
        log_event(LOG_WARN, "results could not be written", "reason", why, (char *)NULL);
    state->store_failures = failures;
}
