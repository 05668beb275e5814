/* SPDX-License-Identifier: Apache-2.0 */

/* See stream.h. */

#include "session/stream.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "state/state.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* In bytes. LATER_COST is counted for each exec: thread, record and buffers. */
enum { THREAD_STACK = 512 << 10, LATER_COST = 64 << 10 };

struct later {
    struct state *state;
    struct session *session;
    struct exec_spec spec;
    struct history_run *record;
    struct purse purse; /* counts the request's code and stdin */
};

static void on_output(void *context, enum run_stream stream, const char *data, size_t len)
{
    const struct later *later = context;
    history_output(later->record, stream, data, len);
}

static void write_value(struct json_text *t, const void *value)
{
    json_text_value(t, value);
}

static void on_event(void *context, const char *name, const json_t *value)
{
    const struct later *later = context;
    struct answer *text =
        json_text_answer(later->state->ledger, later->purse.owner, write_value, value);
    if (text)
        history_event(later->record, name, text->text);
    answer_release(text);
}

static json_t *error_json(const struct err *err)
{
    return json_pack("{s:s, s:s, s:[]}", "name", err_table[err->code].name, "value",
        err->message, "traceback");
}

/* The answer when there is no memory for the real one. */
static struct answer *starved_answer(void)
{
    struct err err = {0};
    (void)state_full(&err);
    json_t *json =
        json_pack("{s:s, s:o}", "status", "internal_error", "error", error_json(&err));
    cleanup_free char *text = json_dumps(json, JSON_COMPACT);
    json_decref(json);
    return answer_of_text(text ? text : "{}");
}

static void *run(void *arg)
{
    struct later *later = arg;
    struct state *state = later->state;
    const struct exec_watch watch = {.context = later,
        .output = on_output,
        .event = on_event,
        .cancel_fd = history_cancel_fd(later->record)};
    struct exec_result result;
    struct err err = {0};
    history_started(later->record);
    int r = session_exec(later->session, &later->spec, &watch, &result, &err);
    json_t *error = r < 0 ? error_json(&err) : NULL;
    struct answer *answer = exec_result_answer(&result, error);
    json_decref(error);
    enum run_status status = answer ? result.status : RUN_INTERNAL_ERROR;
    if (!answer)
        answer = starved_answer();
    exec_result_done(&result);
    history_finish(later->record, status, answer);
    answer_release(answer);
    history_unref(later->record);
    session_unref(later->session);
    exec_spec_done(&later->spec);
    purse_close(&later->purse);
    free(later);
    state->background--;
    return NULL;
}

int session_exec_later(struct state *state, struct session *s, int owner,
    struct exec_spec *spec, struct history_run *record, struct err *err)
{
    struct later *later = xmalloc(sizeof(*later));
    pthread_attr_t attr;
    pthread_t thread;
    *later = (struct later){.state = state, .session = s, .spec = *spec, .record = record};
    purse_open(&later->purse, state->ledger, owner);
    if (!purse_take(&later->purse, LATER_COST + 2 * (spec->code_len + spec->stdin_size))) {
        free(later);
        return state_full(err);
    }
    state->background++;
    (void)pthread_attr_init(&attr);
    (void)pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    (void)pthread_attr_setstacksize(&attr, THREAD_STACK);
    int r = -pthread_create(&thread, &attr, run, later);
    (void)pthread_attr_destroy(&attr);
    if (r < 0) {
        state->background--;
        purse_close(&later->purse);
        free(later);
        return err_set(err, ERR_UNAVAILABLE, -r, "no thread is left for this exec");
    }
    *spec = (struct exec_spec){0};
    return 0;
}
