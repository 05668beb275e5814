/* SPDX-License-Identifier: Apache-2.0 */

/* See seeds.h. The tick decides when a build starts and when it gives way; the thread of the
 * build only builds. */

#include "service/seeds.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "image/seed_build.h"
#include "lang/seed.h"
#include "service/later.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum {
    QUIET_MS = 1000,   /* without work, before a seed that was needed is made */
    RETRY_MS = 300000, /* after a build that failed */
    NONE = -1,
};

struct seed_keeper {
    uint64_t busy_ms; /* when something last ran or waited, clock_ms() */
    int cancel_fd;
    atomic_int making;          /* index of a runtime, or NONE */
    _Atomic uint64_t *retry_ms; /* per runtime: not before this time; 0: nothing has failed */
};

struct seed_work {
    struct later later;
    int index;
};

void service_seeds_open(struct state *state)
{
    if (!state->engine ||
        !engine_has_seeds(state->engine)) /* the fixture of MCP has no engine */
        return;
    struct seed_keeper *k = xcalloc(1, sizeof(*k));
    k->retry_ms = xcalloc(state->runtimes.count, sizeof(*k->retry_ms));
    k->cancel_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    k->making = NONE;
    k->busy_ms = clock_ms();
    state->seeds = k;
}

void service_seeds_close(struct state *state)
{
    struct seed_keeper *k = state->seeds;
    if (!k)
        return;
    close_fd(&k->cancel_fd);
    free(k->retry_ms);
    free(k);
}

static const char *missing_place(const struct state *state, const struct runtime *rt)
{
    const char *place = rt->available ? engine_seed_place(state->engine, rt) : NULL;
    return place && !seed_is_ready(place) ? place : NULL;
}

static enum run_status build(struct later *later, struct answer **ret_answer)
{
    const struct seed_work *work = (const struct seed_work *)later;
    struct state *state = later->state;
    struct seed_keeper *k = state->seeds;
    const struct runtime *rt = &state->runtimes.items[work->index];
    const struct seed_builder builder = {.engine = state->engine,
        .dir = state->config.seed_dir,
        .owner = SPAWN_OWNER_IDLE,
        .cancel_fd = k->cancel_fd};
    struct err err = {0};
    uint64_t start_ms = clock_ms();
    int r = seed_build(&builder, rt, &err);
    if (r == 0) {
        cleanup_free char *took =
            xasprintf("%llu", (unsigned long long)(clock_ms() - start_ms));
        log_event(LOG_INFO, "a seed is ready", "language", rt->name, "ms", took, (char *)NULL);
    } else if (err.code != ERR_CONFLICT) {
        log_event(LOG_WARN, "a seed could not be made; compilers are slower", "language",
            rt->name, "reason", err.message, (char *)NULL);
        k->retry_ms[work->index] = clock_ms() + RETRY_MS;
    }
    k->making = NONE;
    return RUN_OK;
}

static void free_work(struct later *later)
{
    free(later);
}

static void start(struct state *state, int index)
{
    struct seed_work *work = xcalloc(1, sizeof(*work));
    struct err err = {0};
    eventfd_t ignored;
    (void)eventfd_read(state->seeds->cancel_fd, &ignored);
    *work = (struct seed_work){
        .later = {.state = state, .owner = -1, .work = build, .free = free_work},
        .index = index};
    state->seeds->making = index;
    if (later_start(&work->later, NULL, &err) < 0) {
        state->seeds->making = NONE;
        later_free(&work->later);
    }
}

/* The next seed to make. One that was needed goes first. */
static int choose(const struct state *state, bool also_others)
{
    const struct seed_keeper *k = state->seeds;
    int found = NONE;
    for (size_t i = 0; i < state->runtimes.count; i++) {
        const struct runtime *rt = &state->runtimes.items[i];
        if (!rt->compile.seed.recipe || !missing_place(state, rt) ||
            k->retry_ms[i] > clock_ms())
            continue;
        if (engine_seed_is_needed(state->engine, rt))
            return (int)i;
        if (also_others && found == NONE)
            found = (int)i;
    }
    return found;
}

void service_seeds_tick(struct state *state)
{
    struct seed_keeper *k = state->seeds;
    struct admit_state a;
    if (!k)
        return;
    admit_get_state(state->admit, &a);
    uint64_t now_ms = clock_ms();
    if (a.running || a.waiting)
        k->busy_ms = now_ms;
    if (k->making != NONE && (a.waiting || state->stopping))
        (void)eventfd_write(k->cancel_fd, 1); /* cancels the build; it starts again later */
    uint64_t idle_ms = now_ms - k->busy_ms;
    uint64_t others_ms = state->config.seed_idle_s * 1000;
    if (k->making != NONE || state->stopping || idle_ms < QUIET_MS)
        return;
    int index = choose(state, others_ms && idle_ms >= others_ms);
    if (index != NONE)
        start(state, index);
}

json_t *service_seeds_json(struct state *state)
{
    struct seed_keeper *k = state->seeds;
    json_t *list = json_array();
    for (size_t i = 0; i < state->runtimes.count; i++) {
        const struct runtime *rt = &state->runtimes.items[i];
        if (!rt->available || !engine_seed_place(state->engine, rt))
            continue;
        const char *word = !missing_place(state, rt)  ? "ready"
                           : k && k->making == (int)i ? "making"
                           : k && k->retry_ms[i]      ? "failed"
                                                      : "missing";
        (void)json_array_append_new(
            list, json_pack("{s:s, s:s}", "language", rt->name, "state", word));
    }
    return list;
}
