/* SPDX-License-Identifier: Apache-2.0 */

/* See service.h. A run waits for its place, then for the spawner if that is just being
 * replaced, then gets a box. Asynchronous and streamed runs do the same on a thread of their
 * own and write events into the history, from which any number of clients read. */

#include "service/service.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/machine.h"
#include "service/calibrate.h"
#include "session/session.h"
#include "state/memory_plan.h"
#include "store/run_store.h"

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <poll.h>
#include <pthread.h>
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
    THREAD_STACK = 512 << 10,
    LATER_WAIT_MS = 3600 * 1000, /* no client holds a connection open for these */
    LATER_COST = 64 << 10,       /* bytes of the thread and the record */
    ITEM_COST = 32,              /* bytes of a string besides its text */
    FILE_COST = 256,             /* bytes of a file's record */
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

static void *calibrate(void *arg)
{
    struct state *s = arg;
    calibrate_warm(s->engine, &s->stopping);
    s->background--;
    return NULL;
}

static void start_calibration(struct state *s)
{
    pthread_t thread;
    pthread_attr_t attr;
    (void)pthread_attr_init(&attr);
    (void)pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    s->background++;
    if (pthread_create(&thread, &attr, calibrate, s) != 0)
        s->background--;
    (void)pthread_attr_destroy(&attr);
}

static int plan_memory(
    struct state *s, uint64_t memory_mb, struct memory_plan *ret, struct err *err)
{
    s->config.memory_mb = memory_mb;
    int r = memory_plan_make(&s->config, ret, err);
    if (r < 0)
        return r;
    s->ledger = ledger_new(ret->held_bytes, s->keys.count);
    s->spills = ledger_new(SPILLS_SHARE * s->config.history_max, s->keys.count);
    s->memory_max = ret->limit_mb << 20;
    return 0;
}

int service_open(struct state *state, struct err *err)
{
    const struct config *c = &state->config;
    struct memory_plan plan;
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
    if (plan_memory(state, memory_mb, &plan, err) < 0)
        return -EINVAL;
    state->admit = admit_new(&options);
    cap_runtimes(state);
    state->sessions = sessions_new(state);
    int r = open_history(state, plan.history_bytes, err);
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
    sessions_free(state->sessions);
    run_store_close(state->store);
    history_free(state->history);
    ledger_free(state->ledger);
    ledger_free(state->spills);
    admit_free(state->admit);
    engine_leave(state->engine);
    runtime_registry_done(&state->runtimes);
    keys_done(&state->keys);
    config_done(&state->config);
}

static int run_admitted(struct state *s, const struct service_call *call,
    struct run_result *result, struct err *err)
{
    int r = state_wait_for_spawner(s, call->watch->cancel_fd, err);
    struct run_spec spec = *call->spec;
    spec.owner = (uint32_t)(call->owner + 1);
    if (r == 0)
        r = engine_run(s->engine, &spec, call->watch, result, err);
    if (r < 0 && r != -ECANCELED && err->code == ERR_INTERNAL)
        result->run.status = RUN_INTERNAL_ERROR;
    return r;
}

static void set_cancelled(struct run_result *result)
{
    result->run.status = RUN_CANCELLED;
    (void)snprintf(
        result->run.message, sizeof(result->run.message), "cancelled before it began");
}

/* Checks the spec and takes a place for it. */
static int begin_run(struct state *s, const struct service_call *call,
    struct admit_ticket *ticket, struct err *err)
{
    struct box_need box;
    int r = engine_weigh(s->engine, call->spec, &box, err);
    if (r < 0)
        return r;
    const struct admit_need need = admit_need_run(&box);
    return session_admit(s, call->owner, &need, ticket, err);
}

static int finish_run(struct state *s, const struct service_call *call,
    struct admit_ticket *ticket, uint32_t wait_ms, struct run_result *result, struct err *err)
{
    int r = admit_wait(s->admit, ticket, call->watch->cancel_fd, wait_ms, err);
    if (r < 0 && r != -ECANCELED)
        return r;
    if (r == 0) {
        r = run_admitted(s, call, result, err);
        result->run.usage.queue_ms = ticket->queue_ms;
        admit_leave(s->admit, ticket, result->run.usage.cpu_ms + result->compile.usage.cpu_ms);
    }
    if (r == -ECANCELED) {
        set_cancelled(result);
        r = 0;
    }
    if (r == 0 || result->run.status == RUN_INTERNAL_ERROR)
        metrics_count_run(&s->metrics, &s->runtimes, call->spec->runtime, result,
            (double)(clock_ns() - ticket->began_ns) / 1e6);
    return r;
}

int service_run(struct state *state, const struct service_call *call, struct run_result *result,
    struct err *err)
{
    struct admit_ticket ticket;
    int r = begin_run(state, call, &ticket, err);
    return r < 0 ? r : finish_run(state, call, &ticket, 0, result, err);
}

/* A run in the background; its thread owns this. */
struct later {
    struct state *state;
    struct run_spec spec;
    int owner;
    enum result_encoding encoding;
    struct history_run *run;
    struct admit_ticket ticket;
    struct purse purse; /* memory of the request and of its output */
};

static void on_started(void *context)
{
    history_started(context);
}

static void on_output(void *context, enum run_stream stream, const char *data, size_t len)
{
    history_output(context, stream, data, len);
}

/* Makes the answer of a finished run, or of its failure when Hermes failed or has no memory for
 * the answer. */
static struct answer *encode_later(
    const struct later *later, struct run_result *result, struct err *err)
{
    struct answer *answer = result_answer(
        result, later->encoding, err->code ? err : NULL, later->state->ledger, later->owner);
    if (answer)
        return answer;
    (void)state_full(err);
    result->run.status = RUN_INTERNAL_ERROR;
    run_files_done(&result->files);
    stage_result_done(&result->compile);
    stage_result_done(&result->run);
    answer = result_answer(result, ENCODE_UTF8, err, NULL, -1);
    return answer ? answer : answer_of_text("{\"status\": \"internal_error\"}");
}

static void *run_later(void *arg)
{
    struct later *later = arg;
    struct state *s = later->state;
    struct run_watch watch = {.context = later->run,
        .started = on_started,
        .output = on_output,
        .purse = &later->purse.counts,
        .cancel_fd = history_cancel_fd(later->run)};
    struct service_call call = {.spec = &later->spec, .owner = later->owner, .watch = &watch};
    struct run_result result;
    struct err err = {0};
    run_result_init(&result, 1 << 20);
    (void)snprintf(result.id, sizeof(result.id), "%s", history_id(later->run));
    int r = finish_run(s, &call, &later->ticket, LATER_WAIT_MS, &result, &err);
    if (r < 0) {
        result.run.status = RUN_INTERNAL_ERROR;
        log_event(LOG_WARN, "run failed", "run", result.id, "code", err_table[err.code].name,
            "reason", err.message, (char *)NULL);
    } else {
        err = (struct err){0};
    }
    struct answer *answer = encode_later(later, &result, &err);
    run_result_done(&result);
    history_finish(later->run, result.run.status, answer);
    answer_release(answer);
    history_unref(later->run);
    run_spec_done(&later->spec);
    purse_close(&later->purse);
    free(later);
    s->background--;
    return NULL;
}

static int start_thread(struct later *later)
{
    pthread_attr_t attr;
    pthread_t thread;
    (void)pthread_attr_init(&attr);
    (void)pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    (void)pthread_attr_setstacksize(&attr, THREAD_STACK);
    int r = pthread_create(&thread, &attr, run_later, later);
    (void)pthread_attr_destroy(&attr);
    return -r;
}

static size_t list_bytes(const struct strv *list)
{
    size_t bytes = 0;
    for (size_t i = 0; i < list->count; i++)
        bytes += strlen(list->items[i]) + ITEM_COST;
    return bytes;
}

/* The memory that a run takes while it waits: the thread and the record, the request, and the
 * copy of the request for its box. */
static size_t spec_bytes(const struct run_spec *spec)
{
    size_t bytes = spec->stdin_size + list_bytes(&spec->args) + list_bytes(&spec->env) +
                   list_bytes(&spec->compile_args) + list_bytes(&spec->collect);
    for (size_t i = 0; i < spec->files.count; i++)
        bytes += spec->files.items[i].size + FILE_COST;
    return LATER_COST + 2 * bytes;
}

int service_run_later(struct state *state, struct run_spec *spec, int owner,
    enum result_encoding encoding, struct history_run *run, struct err *err)
{
    struct later *later = xcalloc(1, sizeof(*later));
    struct service_call call = {.spec = spec, .owner = owner};
    purse_open(&later->purse, state->ledger, owner);
    int r = purse_take(&later->purse, spec_bytes(spec)) ? 0 : state_full(err);
    if (r == 0)
        r = begin_run(state, &call, &later->ticket, err);
    if (r < 0) {
        purse_close(&later->purse);
        free(later);
        return r;
    }
    later->state = state;
    later->spec = *spec;
    later->owner = owner;
    later->encoding = encoding;
    later->run = run;
    state->background++;
    if ((r = start_thread(later)) < 0) {
        state->background--;
        admit_drop(state->admit, &later->ticket);
        purse_close(&later->purse);
        free(later);
        return err_set(err, ERR_UNAVAILABLE, -r, "no thread is left for this run");
    }
    run_spec_init(spec);
    return 0;
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
    if (!state->store)
        return;
    uint64_t failures = run_store_failures(state->store, why, sizeof(why));
    if (failures != state->store_failures)
        log_event(LOG_WARN, "results could not be written", "reason", why, (char *)NULL);
    state->store_failures = failures;
}
