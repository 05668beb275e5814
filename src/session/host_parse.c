/* SPDX-License-Identifier: Apache-2.0 */

/* Parses shell texts: `shfmt --to-json` in a box like any other, without a network. A text that
 * was parsed before needs no box (approval/shell_cache.h). The tree is read by
 * approval/shell_tree.c. */

#include "session/host.h"

#include "approval/shell_cache.h"
#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/log.h"
#include "state/state.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

enum { CPU_MS = 2000, WALL_MS = 10000, MEMORY_MB = 256 };

/* A tree takes several times the memory of its text. One at a time is built. */
static pthread_mutex_t tree_lock = PTHREAD_MUTEX_INITIALIZER;

static struct run_limits parse_limits(void)
{
    struct run_limits limits = {.wall_ms = WALL_MS,
        .cpu_ms = CPU_MS,
        .memory_mb = MEMORY_MB,
        .processes = 32,
        .open_files = 64,
        .disk_mb = 1,
        .file_size_mb = 1,
        .output_kb = SHELL_TREE_MAX >> 10,
        .cpu_milli = 1000};
    limits_fill(&limits, &(struct run_limits){0});
    return limits;
}

/* Waits for a place as a run does, so that parsing counts. */
static int run_parser(struct host_parser *p, const struct run_plan *plan,
    struct run_result *result, struct err *err)
{
    struct state *state = p->s->all->state;
    const struct run_watch watch = {.cancel_fd = p->cancel_fd};
    const struct box_need box = run_plan_need(plan);
    const struct admit_need need = admit_need_run(&box);
    struct admit_ticket ticket = {0};
    int r = session_admit(state, p->s->owner_index, &need, &ticket, err);
    if (r < 0)
        return r;
    ticket.also_fd = -1;
    r = admit_wait(state->admit, &ticket, p->cancel_fd, 0, err);
    if (r < 0) {
        admit_drop(state->admit, &ticket);
        return r;
    }
    r = state_wait_for_spawner(state, p->cancel_fd, err);
    state->metrics.parsed += r == 0;
    if (r == 0)
        r = engine_run(state->engine, plan, &watch, result, err);
    admit_leave(state->admit, &ticket, result->run.usage.cpu_ms);
    return r;
}

static int parse_in_box(struct host_parser *p, const struct runtime *tool, const char *text,
    size_t len, json_t **ret)
{
    CLEANUP(run_spec_done) struct run_spec spec;
    CLEANUP(run_result_done) struct run_result result;
    CLEANUP(run_plan_done) struct run_plan plan = {0};
    struct err err = {0};
    run_spec_init(&spec);
    run_result_init(&result, SHELL_TREE_MAX);
    spec.runtime = tool;
    spec.is_internal = true;
    spec.owner = (uint32_t)(p->s->owner_index + 1);
    spec.limits = spec.compile_limits = parse_limits();
    run_files_add(
        &spec.files, "text", xstrdup("-"), 1, false); /* a run has a file; shfmt reads stdin */
    spec.stdin_data = xmalloc(len + 1);
    memcpy(spec.stdin_data, text, len);
    spec.stdin_size = len;
    int r = run_plan_make(&spec, &spec.limits, &plan, &err);
    if (r == 0 && (r = run_parser(p, &plan, &result, &err)) < 0 &&
        (r == -ECANCELED || err.code == ERR_BUSY)) {
        p->failed = r; /* no question about a text that Hermes was too busy to parse */
        *p->err = err;
        return -EBADMSG;
    }
    if (r < 0)
        log_event(LOG_WARN,
            "a shell text could not be parsed; approval is asked for the whole text", "reason",
            err.message, (char *)NULL);
    if (r < 0 || result.run.status != RUN_OK || !result.run.out.len)
        return -EBADMSG;
    (void)pthread_mutex_lock(&tree_lock);
    *ret = json_loadb(result.run.out.data, result.run.out.len, JSON_REJECT_DUPLICATES, NULL);
    (void)pthread_mutex_unlock(&tree_lock);
    return *ret ? 0 : -EBADMSG;
}

/* -EBADMSG when there is no tree; other errors (p->err) end the exec. */
int host_parse(void *context, const char *text, size_t len, json_t **ret)
{
    struct host_parser *p = context;
    struct sessions *all = p->s->all;
    const int owner = p->s->owner_index;
    const struct runtime *tool = runtime_find_internal(&all->state->runtimes, HOST_PARSE_TOOL);
    if (!tool || !tool->available || p->failed)
        return -EBADMSG;
    *ret = shell_cache_get(all->trees, owner, text, len);
    if (*ret) {
        all->state->metrics.parse_hits++;
        return 0;
    }
    int r = parse_in_box(p, tool, text, len, ret);
    if (r == 0)
        shell_cache_put(all->trees, owner, text, len, *ret);
    return r;
}

void host_parse_check(const struct state *state)
{
    const struct runtime *tool = runtime_find_internal(&state->runtimes, HOST_PARSE_TOOL);
    const struct place_table *places = &state->config.places;
    for (uint32_t i = 0; i < places->count && !(tool && tool->available); i++)
        if (!place_is_box(&places->rows[i])) {
            log_event(LOG_WARN,
                "commands of a backend cannot be read, so each text needs an approval of its "
                "own; install shfmt",
                "backend", places->rows[i].name, (char *)NULL);
            return;
        }
}
