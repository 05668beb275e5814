/* SPDX-License-Identifier: Apache-2.0 */

/* Judgements on a server. A judgement takes a place as a run does. Further tests run in
 * parallel while places are free and nobody waits for one; they give their places back when
 * somebody does. */

#include "service/judge.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/log.h"
#include "base/machine.h"
#include "session/session.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    THREAD_STACK = 512 << 10,    /* bytes */
    LATER_WAIT_MS = 3600 * 1000, /* milliseconds; no client holds a connection open for these */
    LATER_COST = 64 << 10,       /* bytes of the thread and the record */
    TEST_COST = 8 << 10,         /* bytes of a test's JSON values, without its texts */
    TALK_COST = 1 << 10,         /* bytes of a message's JSON values */
};

/* A judgement under way. */
struct under_way {
    struct state *state;
    struct service_judgement *judgement;
    struct history_run *record;
    struct admit_ticket ticket;
    struct admit_need need;
    struct purse purse; /* memory of the request and of its programs' output */
    bool on_thread;     /* this struct and the judgement belong to its thread */
};

static void on_started(void *context)
{
    struct under_way *u = context;
    history_started(u->record);
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
    struct state *s = u->state;
    const struct json_judge *judge = &u->judgement->judge;
    if (test->ran)
        metrics_count_run(&s->metrics, &s->runtimes, judge->spec.solution.runtime, &test->run,
            test->run.run.usage.wall_ms);
    size_t weight = test_weight(test);
    if (history_is_quiet(u->record) || !purse_take(&u->purse, weight))
        return; /* the answer will contain it */
    json_t *json = judge_json_test(&judge->spec, index, test, judge->encoding);
    struct answer *text = json_text_answer(s->ledger, u->ticket.owner, write_value, json);
    json_decref(json);
    if (text)
        history_event(u->record, "test", text->text);
    answer_release(text);
    purse_give(&u->purse, weight);
}

static bool on_more(void *context)
{
    struct under_way *u = context;
    struct admit_ticket ticket;
    return admit_try(u->state->admit, u->ticket.owner, &u->need, &ticket);
}

static bool on_keep(void *context)
{
    struct under_way *u = context;
    return !admit_is_wanted(u->state->admit, &u->ticket);
}

/* CPU time of these tests is charged with the judgement's own place. */
static void on_less(void *context)
{
    struct under_way *u = context;
    struct admit_ticket ticket = u->ticket;
    admit_leave(u->state->admit, &ticket, 0);
}

static int begin(struct under_way *u, int owner, struct err *err)
{
    struct state *s = u->state;
    struct judge_spec *spec = &u->judgement->judge.spec;
    purse_open(&u->purse, s->ledger, owner);
    if (!purse_take(&u->purse, LATER_COST + u->judgement->bytes + judge_records_size(spec)))
        return state_full(err);
    if (!spec->parallel) /* one box runs while another one is being made */
        spec->parallel = 2 * machine_cores();
    spec->solution.owner = spec->checker.owner = spec->interactor.owner = (uint32_t)(owner + 1);
    struct box_need box;
    int r = judge_weigh(s->engine, spec, &box, err);
    if (r < 0)
        return r;
    u->need = admit_need_run(&box);
    return session_admit(s, owner, &u->need, &u->ticket, err);
}

static int encode(struct under_way *u, const struct judge_result *result,
    struct answer **ret_answer, struct err *err)
{
    struct state *s = u->state;
    const struct service_judgement *judgement = u->judgement;
    const char *key = s->config.signing_key;
    if (!purse_take(&u->purse, result_weight(result, key[0])))
        return state_full(err);
    json_t *json = judge_json(&judgement->judge.spec, result, judgement->judge.encoding);
    if (key[0])
        judge_json_sign(json, judgement->request_hash, key);
    *ret_answer = json_text_answer(s->ledger, u->ticket.owner, write_value, json);
    json_decref(json);
    return *ret_answer ? 0 : state_full(err);
}

/* Waits for the place, judges and makes the answer. */
static int finish(struct under_way *u, uint32_t wait_ms, struct answer **ret_answer,
    enum run_status *ret_status, struct err *err)
{
    struct state *s = u->state;
    const struct service_judgement *judgement = u->judgement;
    int cancel_fd = history_cancel_fd(u->record);
    const struct judge_watch watch = {.context = u,
        .started = on_started,
        .tested = on_tested,
        .more = on_more,
        .keep = on_keep,
        .less = on_less,
        .purse = &u->purse.counts,
        .cancel_fd = cancel_fd};
    struct judge_result result = {0};
    int r = admit_wait(s->admit, &u->ticket, cancel_fd, wait_ms, err);
    (void)snprintf(result.id, sizeof(result.id), "%s", history_id(u->record));
    if (r == 0) {
        r = judge_run(s->engine, &judgement->judge.spec, &watch, &result, err);
        admit_leave(s->admit, &u->ticket, result.cpu_ms);
    } else if (r == -ECANCELED) {
        result.cancelled = true;
        result.verdict = JUDGE_SKIPPED;
        r = 0;
    }
    if (r == 0 && (r = encode(u, &result, ret_answer, err)) == 0)
        *ret_status = result.cancelled ? RUN_CANCELLED : RUN_OK;
    judge_result_done(&result);
    return r;
}

int service_judge(struct state *state, struct service_judgement *judgement, int owner,
    struct history_run *record, struct answer **ret_answer, enum run_status *ret_status,
    struct err *err)
{
    struct under_way u = {.state = state, .judgement = judgement, .record = record};
    int r = begin(&u, owner, err);
    if (r == 0)
        r = finish(&u, 0, ret_answer, ret_status, err);
    purse_close(&u.purse);
    return r;
}

static void under_way_free(struct under_way *u)
{
    json_judge_done(&u->judgement->judge);
    free(u->judgement);
    purse_close(&u->purse);
    free(u);
}

static void *judge_later(void *arg)
{
    struct under_way *u = arg;
    struct state *s = u->state;
    struct err err = {0};
    enum run_status status = RUN_INTERNAL_ERROR;
    struct answer *answer = NULL;
    int r = finish(u, LATER_WAIT_MS, &answer, &status, &err);
    if (r < 0) {
        log_event(LOG_WARN, "judgement failed", "run", history_id(u->record), "code",
            err_table[err.code].name, "reason", err.message, (char *)NULL);
        answer = service_judge_failure(history_id(u->record), &err);
    }
    history_finish(u->record, status, answer);
    answer_release(answer);
    history_unref(u->record);
    under_way_free(u);
    s->background--;
    return NULL;
}

struct answer *service_judge_failure(const char *id, const struct err *err)
{
    json_t *json = json_pack("{s:s, s:s, s:s, s:s, s:{s:s, s:s}}", "id", id, "status",
        "internal_error", "verdict", "internal_error", "message", err->message, "error", "code",
        err_table[err->code].name, "message", err->message);
    cleanup_free char *text = json_dumps(json, JSON_COMPACT);
    json_decref(json);
    return answer_of_text(text ? text : "{}");
}

int service_judge_later(struct state *state, struct service_judgement *judgement, int owner,
    struct history_run *record, struct err *err)
{
    struct under_way *u = xcalloc(1, sizeof(*u));
    pthread_attr_t attr;
    pthread_t thread;
    *u = (struct under_way){.state = state, .judgement = judgement, .record = record};
    int r = begin(u, owner, err);
    if (r < 0) {
        purse_close(&u->purse);
        free(u);
        return r;
    }
    /* The thread gets its own copy; the caller keeps an empty one. */
    u->judgement = xmalloc(sizeof(*judgement));
    *u->judgement = *judgement;
    state->background++;
    (void)pthread_attr_init(&attr);
    (void)pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    (void)pthread_attr_setstacksize(&attr, THREAD_STACK);
    r = -pthread_create(&thread, &attr, judge_later, u);
    (void)pthread_attr_destroy(&attr);
    if (r < 0) {
        state->background--;
        admit_drop(state->admit, &u->ticket);
        free(u->judgement);
        purse_close(&u->purse);
        free(u);
        return err_set(err, ERR_UNAVAILABLE, -r, "no thread is left for this judgement");
    }
    judge_spec_init(&judgement->judge.spec);
    return 0;
}
