/* SPDX-License-Identifier: Apache-2.0 */

/* Judgements on a server. A judgement takes a place as a run does. Further tests run in
 * parallel while places are free and no request waits for one; they give their places back as
 * soon as one does. */

#include "service/judge.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/os/machine.h"
#include "network/report.h"
#include "service/image.h"
#include "service/later.h"
#include "session/session.h"
#include "state/effects.h"
#include "state/network.h"
#include "state/secrets.h"
#include "json/body.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    TEST_COST = 8 << 10, /* bytes of a test's JSON values, without its texts */
    TALK_COST = 1 << 10, /* bytes of a message's JSON values */
    ROW_COST = 2 << 10,  /* bytes of the JSON values of a row of a network record */
};

/* A judgement under way, on the caller's thread or on its own. */
struct under_way {
    struct later later;
    struct service_judgement judgement;
    struct judge_plan plan;
    struct admit_ticket ticket;
    struct admit_need need;
    struct effects effects;
};

static void on_started(void *context)
{
    struct under_way *u = context;
    history_started(u->later.record);
}

static size_t text_bytes(const struct stage_result *stage)
{
    return stage->out.len + stage->err.len;
}

/* The memory of a test's JSON values. An invalid byte becomes three bytes of U+FFFD. */
static size_t test_weight(const struct judge_test_result *test)
{
    size_t bytes = 3 * text_bytes(&test->run.run) + TEST_COST + test->talk_count * TALK_COST;
    for (size_t i = 0; i < test->talk_count; i++)
        bytes += 3 * test->talk[i].len;
    const struct network_report *reports[] = {
        test->run.run.network, test->checker_network, test->interactor_network};
    for (size_t i = 0; i < 3; i++)
        bytes += reports[i] ? reports[i]->count * ROW_COST : 0;
    return bytes;
}

/* The same for all tests. A signature needs two more copies, and each of the two as text (a
 * value is at most twice as long as text). */
static size_t result_weight(const struct judge_result *result, bool is_signed)
{
    size_t bytes = 3 * text_bytes(&result->compile.compile) + TEST_COST;
    for (size_t i = 0; i < result->test_count; i++)
        bytes += test_weight(&result->tests[i]);
    return is_signed ? 7 * bytes : bytes;
}

static void write_value(struct json_text *t, const void *value)
{
    json_text_value(t, value);
}

static void on_tested(void *context, size_t index, const struct judge_test_result *test)
{
    struct under_way *u = context;
    struct state *s = u->later.state;
    const struct json_judge *judge = &u->judgement.judge;
    if (test->ran)
        metrics_count_run(&s->metrics, &s->runtimes, judge->spec.solution.runtime, &test->run,
            test->run.run.usage.wall_ms);
    size_t weight = test_weight(test);
    if (history_is_quiet(u->later.record) || !purse_take(&u->later.purse, weight))
        return; /* the answer will contain it */
    json_t *json = judge_json_test(&judge->spec, index, test, judge->encoding);
    struct answer *text = json_text_answer(s->ledger, u->ticket.owner, NULL, write_value, json);
    json_decref(json);
    if (text)
        history_event(u->later.record, "test", text->text);
    answer_release(text);
    purse_give(&u->later.purse, weight);
}

static bool on_more(void *context)
{
    struct under_way *u = context;
    struct admit_ticket ticket;
    return admit_try(u->later.state->admit, u->ticket.owner, &u->need, &ticket);
}

static bool on_keep(void *context)
{
    struct under_way *u = context;
    return !admit_is_wanted(u->later.state->admit, &u->ticket);
}

/* CPU time of these tests is charged with the judgement's own place. */
static void on_less(void *context)
{
    struct under_way *u = context;
    struct admit_ticket ticket = u->ticket;
    admit_leave(u->later.state->admit, &ticket, 0);
}

static int check_networks(
    const struct state *s, int owner, struct judge_spec *spec, struct err *err)
{
    const struct {
        struct run_spec *program;
        const char *network;
        const char *secrets;
    } programs[] = {{&spec->solution, "network", "secrets"},
        {&spec->checker, "compare.checker.network", "compare.checker.secrets"},
        {&spec->interactor, "interactor.network", "interactor.secrets"}};
    int r = 0;
    for (size_t i = 0; r == 0 && i < sizeof(programs) / sizeof(programs[0]); i++) {
        struct run_spec *program = programs[i].program;
        r = state_secrets_apply_run(s, owner, program, programs[i].secrets, err);
        if (r == 0)
            r = state_network_check(s, program->network, programs[i].network, err);
    }
    return r;
}

static int ask_effects(struct under_way *u, const char *id, struct err *err)
{
    struct judge_spec *spec = &u->judgement.judge.spec;
    struct run_spec *programs[] = {&spec->solution, &spec->checker, &spec->interactor};
    int r = 0;
    for (size_t i = 0; r == 0 && i < sizeof(programs) / sizeof(programs[0]); i++) {
        const struct effects_request request = {.owner = u->later.owner,
            .run = id,
            .mounts = programs[i]->mounts,
            .mount_count = programs[i]->mount_count,
            .network = programs[i]->network};
        r = effects_ask(u->later.state, &request, &u->effects, err);
        if (r == 0)
            programs[i]->asker = effects_asker(u->later.state, &request);
    }
    return r;
}

/* Plans the programs and takes a place for the first test. */
static int begin(struct under_way *u, const char *id, struct err *err)
{
    struct state *s = u->later.state;
    struct judge_spec *spec = &u->judgement.judge.spec;
    int owner = u->later.owner;
    int r = later_count(&u->later, u->judgement.bytes + judge_records_size(spec), err);
    if (r < 0)
        return r;
    if (!spec->parallel) /* two per core: one box runs while another one is made */
        spec->parallel = 2 * machine_cores();
    spec->solution.owner = spec->checker.owner = spec->interactor.owner = (uint32_t)(owner + 1);
    r = check_networks(s, owner, spec, err);
    struct run_spec *programs[] = {&spec->solution, &spec->checker, &spec->interactor};
    for (size_t i = 0; r == 0 && i < 3; i++)
        r = service_image_find(
            s, owner, programs[i]->image_name, programs[i]->runtime, &programs[i]->image, err);
    if (r == 0)
        r = judge_plan_make(spec, engine_maxima(s->engine), &u->plan, err);
    if (r == 0)
        r = ask_effects(u, id, err);
    if (r < 0)
        return r;
    const struct box_need box = judge_plan_need(&u->plan);
    u->need = admit_need_run(&box);
    return session_admit(s, owner, &u->need, &u->ticket, err);
}

static void add_approvals(
    const struct under_way *u, const struct judge_result *result, json_t *json)
{
    cleanup_free char *text = effects_text(&u->effects, NULL);
    json_t *list = text ? json_loads(text, 0, NULL) : NULL;
    for (size_t i = 0; i < result->test_count; i++) {
        const struct judge_test_result *test = &result->tests[i];
        network_report_list_approvals(test->run.run.network, &list);
        network_report_list_approvals(test->checker_network, &list);
        network_report_list_approvals(test->interactor_network, &list);
    }
    if (list)
        (void)json_object_set_new(json, "approvals", list);
}

static int encode(struct under_way *u, const struct judge_result *result,
    struct answer **ret_answer, struct err *err)
{
    struct state *s = u->later.state;
    const struct service_judgement *judgement = &u->judgement;
    const char *key = s->config.signing_key;
    if (!purse_take(&u->later.purse, result_weight(result, key[0])))
        return state_full(err);
    json_t *json = judge_json(&judgement->judge.spec, result, judgement->judge.encoding);
    add_approvals(u, result, json);
    if (key[0])
        judge_json_sign(json, judgement->request_hash, key);
    *ret_answer = json_text_answer(s->ledger, u->ticket.owner, NULL, write_value, json);
    json_decref(json);
    return *ret_answer ? 0 : state_full(err);
}

/* Waits for the place, judges and makes the answer. */
static int finish(struct under_way *u, uint32_t wait_ms, struct answer **ret_answer,
    enum run_status *ret_status, struct err *err)
{
    struct state *s = u->later.state;
    int cancel_fd = history_cancel_fd(u->later.record);
    const struct judge_watch watch = {.context = u,
        .started = on_started,
        .tested = on_tested,
        .more = on_more,
        .keep = on_keep,
        .less = on_less,
        .purse = &u->later.purse.counts,
        .cancel_fd = cancel_fd};
    struct judge_result result = {0};
    struct board_entry entry = {.id = history_id(u->later.record),
        .kind = "judge",
        .language = u->judgement.judge.spec.solution.runtime->name,
        .owner = u->later.owner};
    board_post(&s->board, &entry);
    int r = effects_wait(s, &u->effects, &u->ticket, cancel_fd, err);
    if (r == 0)
        r = admit_wait(s->admit, &u->ticket, cancel_fd, wait_ms, err);
    (void)snprintf(result.id, sizeof(result.id), "%s", history_id(u->later.record));
    if (r == 0) {
        board_start(&s->board, &entry);
        r = judge_run(s->engine, &u->plan, &watch, &result, err);
        admit_leave(s->admit, &u->ticket, result.cpu_ms);
    } else if (r == -ECANCELED) {
        result.cancelled = true;
        result.verdict = JUDGE_SKIPPED;
        r = 0;
    }
    board_remove(&s->board, &entry);
    if (r == 0 && (r = encode(u, &result, ret_answer, err)) == 0)
        *ret_status = result.cancelled ? RUN_CANCELLED : RUN_OK;
    judge_result_done(&result);
    return r;
}

static void free_under_way(struct later *later)
{
    struct under_way *u = (struct under_way *)later;
    judge_plan_done(&u->plan);
    effects_done(&u->effects);
    json_judge_done(&u->judgement.judge);
    free(u);
}

struct answer *service_judge_failure(const char *id, const struct err *err)
{
    json_t *json = json_pack("{s:s, s:s, s:s, s:s, s:o}", "id", id, "status", "internal_error",
        "verdict", "internal_error", "message", err->message, "error", json_error(err));
    cleanup_free char *text = json_dumps(json, JSON_COMPACT);
    json_decref(json);
    return answer_of_text(text ? text : "{}");
}

static enum run_status work(struct later *later, struct answer **ret_answer)
{
    struct under_way *u = (struct under_way *)later;
    struct err err = {0};
    enum run_status status = RUN_INTERNAL_ERROR;
    int r = finish(u, LATER_WAIT_MS, ret_answer, &status, &err);
    if (r < 0) {
        later_log(later, "judgement failed", &err);
        *ret_answer = service_judge_failure(history_id(later->record), &err);
    }
    return status;
}

/* Takes the content of the judgement. */
static struct under_way *under_way_new(
    struct state *state, struct service_judgement *judgement, int owner)
{
    struct under_way *u = xcalloc(1, sizeof(*u));
    u->later =
        (struct later){.state = state, .owner = owner, .work = work, .free = free_under_way};
    u->judgement = *judgement;
    judge_spec_init(&judgement->judge.spec);
    return u;
}

int service_judge(struct state *state, struct service_judgement *judgement, int owner,
    struct history_run *record, struct answer **ret_answer, enum run_status *ret_status,
    struct err *err)
{
    struct under_way *u = under_way_new(state, judgement, owner);
    u->later.record = record;
    int r = begin(u, history_id(record), err);
    if (r == 0)
        r = finish(u, 0, ret_answer, ret_status, err);
    later_free(&u->later);
    return r;
}

int service_judge_later(struct state *state, struct service_judgement *judgement, int owner,
    struct history_run *record, struct err *err)
{
    struct under_way *u = under_way_new(state, judgement, owner);
    int r = begin(u, history_id(record), err);
    if (r == 0 && (r = later_start(&u->later, record, err)) < 0)
        admit_drop(state->admit, &u->ticket);
    if (r < 0)
        later_free(&u->later);
    return r;
}
