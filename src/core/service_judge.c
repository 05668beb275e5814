/* SPDX-License-Identifier: Apache-2.0 */

/* Judgements of a server. One takes a place like a run does; further tests run beside it while
 * places are free and nobody waits for one, and give theirs back when somebody does. */

#include "core/service_judge.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/log.h"
#include "base/machine.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THREAD_STACK = 512 << 10, LATER_WAIT_MS = 3600 * 1000 };

/* A judgement under way. */
struct under_way {
    struct service *service;
    struct service_judgement *judgement;
    struct history_run *record;
    struct admit_ticket ticket;
    struct admit_need need;
    bool on_thread; /* this struct and the judgement belong to its thread */
};

static void on_started(void *context)
{
    struct under_way *u = context;
    history_started(u->record);
}

static void on_tested(void *context, size_t index, const struct judge_test_result *test)
{
    struct under_way *u = context;
    struct service *s = u->service;
    const struct json_judge *judge = &u->judgement->judge;
    if (test->ran)
        metrics_count_run(&s->metrics, &s->runtimes, judge->spec.solution.runtime, &test->run,
            test->run.run.usage.wall_ms);
    json_t *json = judge_json_test(&judge->spec, index, test, judge->encoding);
    char *text = json_dumps(json, JSON_COMPACT | RESULT_JSON_FLAGS);
    json_decref(json);
    if (text)
        history_event(u->record, "test", text);
    free(text);
}

static bool on_more(void *context)
{
    struct under_way *u = context;
    struct admit_ticket ticket;
    return admit_try(u->service->admit, u->ticket.owner, &u->need, &ticket);
}

static bool on_keep(void *context)
{
    struct under_way *u = context;
    return !admit_is_wanted(u->service->admit, &u->ticket);
}

/* What was used is charged with the judgement's own place. */
static void on_less(void *context)
{
    struct under_way *u = context;
    struct admit_ticket ticket = u->ticket;
    admit_leave(u->service->admit, &ticket, 0);
}

static int begin(struct under_way *u, int owner, unsigned *ret_retry_s, struct err *err)
{
    struct service *s = u->service;
    struct judge_spec *spec = &u->judgement->judge.spec;
    *ret_retry_s = 1;
    if (!spec->parallel) /* while one box is being made another one runs */
        spec->parallel = 2 * machine_cores();
    spec->solution.owner = spec->checker.owner = spec->interactor.owner = (uint32_t)(owner + 1);
    struct box_need box;
    int r = judge_weigh(s->engine, spec, &box, err);
    if (r < 0)
        return r;
    u->need = admit_need_run(&box);
    return service_admit(s, owner, &u->need, &u->ticket, ret_retry_s, err);
}

/* Waits for the place, judges and makes the answer: also of a failure when that is ours. */
static int finish(struct under_way *u, uint32_t wait_ms, char **ret_answer, size_t *ret_len,
    enum run_status *ret_status, unsigned *ret_retry_s, struct err *err)
{
    struct service *s = u->service;
    const struct service_judgement *judgement = u->judgement;
    int cancel_fd = history_cancel_fd(u->record);
    const struct judge_watch watch = {.context = u,
        .started = on_started,
        .tested = on_tested,
        .more = on_more,
        .keep = on_keep,
        .less = on_less,
        .cancel_fd = cancel_fd};
    struct judge_result result = {0};
    int r = admit_wait(s->admit, &u->ticket, cancel_fd, wait_ms, ret_retry_s, err);
    (void)snprintf(result.id, sizeof(result.id), "%s", history_id(u->record));
    if (r == 0) {
        r = judge_run(s->engine, &judgement->judge.spec, &watch, &result, err);
        admit_leave(s->admit, &u->ticket, result.cpu_ms);
    } else if (r == -ECANCELED) {
        result.cancelled = true;
        result.verdict = JUDGE_SKIPPED;
        r = 0;
    }
    if (r == 0) {
        json_t *json = judge_json(&judgement->judge.spec, &result, judgement->judge.encoding);
        if (s->config.signing_key[0])
            judge_json_sign(json, judgement->request_hash, s->config.signing_key);
        *ret_answer = json_dumps(json, JSON_COMPACT | RESULT_JSON_FLAGS);
        *ret_len = *ret_answer ? strlen(*ret_answer) : 0;
        *ret_status = result.cancelled ? RUN_CANCELLED : RUN_OK;
        json_decref(json);
    }
    judge_result_done(&result);
    return r;
}

int service_judge(struct service *service, struct service_judgement *judgement, int owner,
    struct history_run *record, char **ret_answer, size_t *ret_len, enum run_status *ret_status,
    unsigned *ret_retry_s, struct err *err)
{
    struct under_way u = {.service = service, .judgement = judgement, .record = record};
    int r = begin(&u, owner, ret_retry_s, err);
    return r < 0 ? r : finish(&u, 0, ret_answer, ret_len, ret_status, ret_retry_s, err);
}

static void under_way_free(struct under_way *u)
{
    json_judge_done(&u->judgement->judge);
    free(u->judgement);
    free(u);
}

static void *judge_later(void *arg)
{
    struct under_way *u = arg;
    struct service *s = u->service;
    struct err err = {0};
    unsigned retry_s;
    enum run_status status = RUN_INTERNAL_ERROR;
    char *answer = NULL;
    size_t len = 0;
    int r = finish(u, LATER_WAIT_MS, &answer, &len, &status, &retry_s, &err);
    if (r < 0) {
        log_event(LOG_WARN, "judgement failed", "run", history_id(u->record), "code",
            err_table[err.code].name, "reason", err.message, (char *)NULL);
        answer = service_judge_failure(history_id(u->record), &err, &len);
    }
    history_finish(u->record, status, answer, len);
    history_unref(u->record);
    under_way_free(u);
    s->background--;
    return NULL;
}

char *service_judge_failure(const char *id, const struct err *err, size_t *ret_len)
{
    json_t *json = json_pack("{s:s, s:s, s:s, s:s, s:{s:s, s:s}}", "id", id, "status",
        "internal_error", "verdict", "internal_error", "message", err->message, "error", "code",
        err_table[err->code].name, "message", err->message);
    char *text = json_dumps(json, JSON_COMPACT);
    json_decref(json);
    *ret_len = text ? strlen(text) : 0;
    return text;
}

int service_judge_later(struct service *service, struct service_judgement *judgement, int owner,
    struct history_run *record, unsigned *ret_retry_s, struct err *err)
{
    struct under_way *u = xcalloc(1, sizeof(*u));
    pthread_attr_t attr;
    pthread_t thread;
    *u = (struct under_way){.service = service, .judgement = judgement, .record = record};
    int r = begin(u, owner, ret_retry_s, err);
    if (r < 0) {
        free(u);
        return r;
    }
    /* The thread has its own copy; the caller keeps an empty one. */
    u->judgement = xmalloc(sizeof(*judgement));
    *u->judgement = *judgement;
    service->background++;
    (void)pthread_attr_init(&attr);
    (void)pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    (void)pthread_attr_setstacksize(&attr, THREAD_STACK);
    r = -pthread_create(&thread, &attr, judge_later, u);
    (void)pthread_attr_destroy(&attr);
    if (r < 0) {
        service->background--;
        admit_drop(service->admit, &u->ticket);
        free(u->judgement);
        free(u);
        return err_set(err, ERR_UNAVAILABLE, -r, "no thread is left for this judgement");
    }
    judge_spec_init(&judgement->judge.spec);
    return 0;
}
