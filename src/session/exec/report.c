/* SPDX-License-Identifier: Apache-2.0 */

/* The result of an exec that has ended: its usage, the files that it changed, its network
 * attempts, the file with its whole output, and the verdict about code that was stopped. */

#include "session/exec/internal.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "session/backend.h"

#include <stdio.h>

#define OUTPUT_FILE(stream) ".hermes/" stream ".txt"

void exec_take_changes(struct exec *e)
{
    if (!e->changes.is_asked)
        session_changes_ask(e->s, &e->changes);
    e->result->files_changed = session_changes_end(e->s, &e->changes, &e->result->files_cut);
    e->has_changes = true;
}

void exec_tell_attempts(struct exec *e)
{
    struct network_row row;
    while (network_tally_next(e->tally, &row)) {
        json_t *json = e->watch->event ? network_row_json(&row) : NULL;
        if (json)
            e->watch->event(e->watch->context, "network", json);
        json_decref(json);
    }
}

static void fill_usage(struct exec *e)
{
    struct session *s = e->s;
    struct run_usage *usage = &e->result->usage;
    usage->cpu_ms = (double)exec_used_cpu_ns(e) / 1e6;
    usage->memory_peak_kb = e->usage.peak_bytes / 1024;
    if (e->usage.flags & ENDED_PIDS && !s->told_pids) {
        s->told_pids = true;
        e->result->limits_hit |= HIT_PROCESSES;
    }
    if (capture_is_cut(&e->result->out) || capture_is_cut(&e->result->err) ||
        e->result->displays_cut)
        e->result->limits_hit |= HIT_OUTPUT;
}

/* Takes the record of network attempts since the exec began. */
static void fill_network(struct exec *e)
{
    struct exec_result *result = e->result;
    if (!e->tally)
        return;
    network_tally_finish(e->tally, e->s->box.socket < 0);
    exec_tell_attempts(e);
    result->network = network_tally_end(take_ptr(e->tally));
    network_report_charge(result->network, &result->purse.counts);
    if (result->network->limit_hit)
        result->limits_hit |= HIT_NETWORK;
}

/* Sets status and message of an exec that was stopped or lost its interpreter. */
static void judge(struct exec *e)
{
    struct exec_result *result = e->result;
    struct session *s = e->s;
    if (e->cause && result->status != RUN_MEMORY_LIMIT) {
        result->status = exec_causes[e->cause].status;
        result->limits_hit |= exec_causes[e->cause].hit;
        (void)snprintf(result->message, sizeof(result->message), "%s%s",
            exec_causes[e->cause].message,
            e->is_lost ? "; it did not react to an interrupt, so the interpreter was ended and "
                         "its state is lost"
                       : "");
    } else if (e->is_lost) {
        (void)snprintf(result->message, sizeof(result->message),
            "%s; the session's state is lost", s->message);
    }
    result->state_lost = result->state_lost || e->is_lost;
}

/* Writes the whole output into the box when the answer has only both ends of it. */
static void deliver_output(struct exec *e)
{
    struct exec_result *result = e->result;
    if (spill_deliver(&e->spills[STREAM_STDOUT], e->s, OUTPUT_FILE("stdout")))
        result->out_file = OUTPUT_FILE("stdout");
    if (spill_deliver(&e->spills[STREAM_STDERR], e->s, OUTPUT_FILE("stderr")))
        result->err_file = OUTPUT_FILE("stderr");
    spill_done(&e->spills[STREAM_STDOUT]);
    spill_done(&e->spills[STREAM_STDERR]);
}

void exec_report(struct exec *e)
{
    struct session *s = e->s;
    struct exec_result *result = e->result;
    result->usage.wall_ms =
        (double)(clock_ns() - e->begin_ns) / 1e6 - (double)(e->waited_ms + e->installed_ms);
    if (!e->has_changes)
        exec_take_changes(e);
    deliver_output(e);
    fill_usage(e);
    fill_network(e);
    judge(e);
    result->tool_calls = s->tools.made;
    (void)pthread_mutex_lock(&s->lock);
    if (e->frames.is_done)
        s->execution_count = result->execution_count;
    else
        result->execution_count = s->execution_count;
    result->cwd = xstrdup(s->cwd);
    result->backend = session_backend_json(s);
    (void)pthread_mutex_unlock(&s->lock);
}
