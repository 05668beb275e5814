/* SPDX-License-Identifier: Apache-2.0 */

/* See service.h. A run is planned, waits for its place, waits for the spawner if it is being
 * replaced, and then gets a box. */

#include "service/service.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "network/report.h"
#include "run/pump.h"
#include "service/image.h"
#include "service/later.h"
#include "service/packages.h"
#include "session/session.h"
#include "state/effects.h"
#include "state/network.h"
#include "state/secrets.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    ITEM_COST = 32,  /* bytes of a string besides its text */
    FILE_COST = 256, /* bytes of a file's record */
};

/* A run that has a plan and a ticket for admission. */
struct admitted {
    struct run_plan plan;
    struct admit_ticket ticket;
    struct effects effects;
};

static int run_admitted(struct state *s, const struct service_call *call,
    const struct run_plan *plan, struct run_result *result, struct err *err)
{
    int r = state_wait_for_spawner(s, call->watch->cancel_fd, err);
    if (r == 0)
        r = engine_run(s->engine, plan, call->watch, result, err);
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

static void admitted_done(struct admitted *admitted)
{
    run_plan_done(&admitted->plan);
    effects_done(&admitted->effects);
}

/* Plans the run, asks about its effects and takes a place for it. */
static int begin_run(struct state *s, struct run_spec *spec, int owner, const char *id,
    int cancel_fd, struct admitted *ret, struct err *err)
{
    struct effects_request request = {
        .owner = owner, .run = id, .mounts = spec->mounts, .mount_count = spec->mount_count};
    spec->owner = (uint32_t)(owner + 1);
    int r = state_secrets_apply_run(s, owner, spec, "secrets", err);
    if (r == 0)
        r = state_network_check(s, spec->network, "network", err);
    if (r < 0)
        return r;
    if (!spec->image)
        r = service_image_find(s, owner, spec->image_name, spec->runtime, &spec->image, err);
    if (r == 0 && spec->installs)
        r = service_packages_for_run(s, owner, spec, cancel_fd, err);
    if (r < 0)
        return r;
    r = run_plan_make(spec, engine_maxima(s->engine), &ret->plan, err);
    request.network = spec->network; /* a secret may have brought one */
    if (r == 0)
        r = effects_ask(s, &request, &ret->effects, err);
    if (r == 0)
        spec->asker = effects_asker(s, &request);
    if (r < 0)
        return r;
    const struct box_need box = run_plan_need(&ret->plan);
    const struct admit_need need = admit_need_run(&box);
    return session_admit(s, owner, &need, &ret->ticket, err);
}

static int finish_posted(struct state *s, const struct service_call *call,
    struct admitted *admitted, struct board_entry *entry, uint32_t wait_ms,
    struct run_result *result, struct err *err)
{
    struct admit_ticket *ticket = &admitted->ticket;
    int r = effects_wait(s, &admitted->effects, ticket, call->watch->cancel_fd, err);
    if (r == 0)
        r = admit_wait(s->admit, ticket, call->watch->cancel_fd, wait_ms, err);
    if (r < 0)
        result->approvals = effects_text(&admitted->effects, NULL);
    if (r < 0 && r != -ECANCELED)
        return r;
    if (r == 0) {
        board_start(&s->board, entry);
        r = run_admitted(s, call, &admitted->plan, result, err);
        result->approvals = effects_text(&admitted->effects, result->run.network);
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

static int finish_run(struct state *s, const struct service_call *call,
    struct admitted *admitted, uint32_t wait_ms, struct run_result *result, struct err *err)
{
    struct board_entry entry = {.id = result->id,
        .kind = "run",
        .language = call->spec->runtime->name,
        .owner = call->owner};
    board_post(&s->board, &entry);
    int r = finish_posted(s, call, admitted, &entry, wait_ms, result, err);
    board_remove(&s->board, &entry);
    return r;
}

int service_run(struct state *state, const struct service_call *call, struct run_result *result,
    struct err *err)
{
    struct admitted admitted = {0};
    int r = begin_run(
        state, call->spec, call->owner, result->id, call->watch->cancel_fd, &admitted, err);
    if (r == 0)
        r = finish_run(state, call, &admitted, 0, result, err);
    admitted_done(&admitted);
    return r;
}

struct run_later {
    struct later later;
    struct run_spec spec;
    enum result_encoding encoding;
    struct admitted admitted;
};

static void on_started(void *context)
{
    history_started(context);
}

static void on_output(void *context, enum run_stream stream, const char *data, size_t len)
{
    history_output(context, stream, data, len);
}

static void on_network(void *context, const struct network_row *row)
{
    json_t *json = network_row_json(row);
    cleanup_free char *text = json_dumps(json, JSON_COMPACT);
    json_decref(json);
    if (text)
        history_event(context, "network", text);
}

/* Makes the answer of a finished run, or of its failure when Hermes failed or has no memory for
 * the answer. */
static struct answer *encode_later(
    struct run_later *run, struct run_result *result, struct err *err)
{
    struct answer *answer = result_answer(result, run->encoding, err->code ? err : NULL,
        run->later.state->ledger, run->later.owner, &run->later.purse);
    if (answer)
        return answer;
    (void)state_full(err);
    result->run.status = RUN_INTERNAL_ERROR;
    run_files_done(&result->files);
    stage_result_done(&result->compile);
    stage_result_done(&result->run);
    answer = result_answer(result, ENCODE_UTF8, err, NULL, -1, NULL);
    return answer ? answer : answer_of_text("{\"status\": \"internal_error\"}");
}

static enum run_status work(struct later *later, struct answer **ret_answer)
{
    struct run_later *run = (struct run_later *)later;
    const struct run_watch watch = {.context = later->record,
        .started = on_started,
        .output = on_output,
        .network = on_network,
        .purse = &later->purse.counts,
        .cancel_fd = history_cancel_fd(later->record)};
    const struct service_call call = {
        .spec = &run->spec, .owner = later->owner, .watch = &watch};
    CLEANUP(run_result_done) struct run_result result;
    struct err err = {0};
    run_result_init(&result, 1 << 20);
    (void)snprintf(result.id, sizeof(result.id), "%s", history_id(later->record));
    int r = finish_run(later->state, &call, &run->admitted, LATER_WAIT_MS, &result, &err);
    if (r == -EPERM && err.code == ERR_DENIED) { /* an approval was denied: the run never
                                                  * began, so it did not fail */
        result.run.status = RUN_CANCELLED;
        (void)snprintf(result.run.message, sizeof(result.run.message), "%.255s", err.message);
        err = (struct err){0};
    } else if (r < 0) {
        result.run.status = RUN_INTERNAL_ERROR;
        later_log(later, "run failed", &err);
    } else {
        err = (struct err){0};
    }
    if (result.run.exited)
        history_exited(later->record, result.run.exit_code);
    *ret_answer = encode_later(run, &result, &err);
    return result.run.status;
}

static void free_run(struct later *later)
{
    struct run_later *run = (struct run_later *)later;
    admitted_done(&run->admitted);
    run_spec_done(&run->spec);
    free(run);
}

static size_t list_bytes(const struct strv *list)
{
    size_t bytes = 0;
    for (size_t i = 0; i < list->count; i++)
        bytes += strlen(list->items[i]) + ITEM_COST;
    return bytes;
}

/* The memory that a run takes while it waits, without its thread and record: the request, its
 * words once more in the plan, and the copy of the request for its box. */
static size_t spec_bytes(const struct run_spec *spec)
{
    size_t words = list_bytes(&spec->args) + list_bytes(&spec->env) +
                   list_bytes(&spec->compile_args) + list_bytes(&spec->collect);
    size_t bytes = spec->stdin_size + (spec->stdin_fd >= 0 ? PUMP_BUFFER : 0);
    for (size_t i = 0; i < spec->files.count; i++)
        bytes += spec->files.items[i].size + FILE_COST;
    if (spec->network)
        bytes += sizeof(*spec->network);
    return 3 * words + 2 * bytes;
}

int service_run_later(struct state *state, struct run_spec *spec, int owner,
    enum result_encoding encoding, struct history_run *record, struct err *err)
{
    struct run_later *run = xcalloc(1, sizeof(*run));
    run->later = (struct later){.state = state, .owner = owner, .work = work, .free = free_run};
    run->spec = *spec;
    run->encoding = encoding;
    run_spec_init(spec);
    int r = later_count(&run->later, spec_bytes(&run->spec), err);
    if (r == 0)
        r = begin_run(state, &run->spec, owner, history_id(record), history_cancel_fd(record),
            &run->admitted, err);
    if (r == 0 && (r = later_start(&run->later, record, err)) < 0)
        admit_drop(state->admit, &run->admitted.ticket);
    if (r < 0)
        later_free(&run->later);
    return r;
}
