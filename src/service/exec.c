/* SPDX-License-Identifier: Apache-2.0 */

/* See exec.h. */

#include "service/exec.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "service/later.h"
#include "json/body.h"

#include <stdlib.h>

struct exec_later {
    struct later later;
    struct session *session;
    struct exec_spec spec;
};

static void on_output(void *context, enum run_stream stream, const char *data, size_t len)
{
    const struct exec_later *exec = context;
    history_output(exec->later.record, stream, data, len);
}

static void write_value(struct json_text *t, const void *value)
{
    json_text_value(t, value);
}

static void on_event(void *context, const char *name, const json_t *value)
{
    const struct exec_later *exec = context;
    struct answer *text = json_text_answer(
        exec->later.state->ledger, exec->later.owner, NULL, write_value, value);
    if (text)
        history_event(exec->later.record, name, text->text);
    answer_release(text);
}

/* The answer when there is no memory for the real one. */
static struct answer *starved_answer(void)
{
    struct err err = {0};
    (void)state_full(&err);
    json_t *json =
        json_pack("{s:s, s:o}", "status", "internal_error", "error", json_error(&err));
    cleanup_free char *text = json_dumps(json, JSON_COMPACT);
    json_decref(json);
    return answer_of_text(text ? text : "{}");
}

static enum run_status work(struct later *later, struct answer **ret_answer)
{
    struct exec_later *exec = (struct exec_later *)later;
    const struct exec_watch watch = {.context = exec,
        .output = on_output,
        .event = on_event,
        .cancel_fd = history_cancel_fd(later->record)};
    struct exec_result result;
    struct err err = {0};
    history_started(later->record);
    int r = session_exec(exec->session, &exec->spec, &watch, &result, &err);
    if (result.exited)
        history_exited(later->record, result.exit_code);
    *ret_answer = exec_result_answer(&result, r < 0 ? &err : NULL);
    enum run_status status = *ret_answer ? result.status : RUN_INTERNAL_ERROR;
    if (!*ret_answer)
        *ret_answer = starved_answer();
    exec_result_done(&result);
    return status;
}

static void free_exec(struct later *later)
{
    struct exec_later *exec = (struct exec_later *)later;
    session_unref(exec->session);
    exec_spec_done(&exec->spec);
    free(exec);
}

int service_exec_later(struct state *state, struct session *s, int owner,
    struct exec_spec *spec, struct history_run *record, struct err *err)
{
    struct exec_later *exec = xcalloc(1, sizeof(*exec));
    exec->later =
        (struct later){.state = state, .owner = owner, .work = work, .free = free_exec};
    int r = later_count(&exec->later, 2 * (spec->code_len + spec->stdin_size), err);
    exec->session = s;
    exec->spec = *spec;
    if (r == 0)
        r = later_start(&exec->later, record, err);
    if (r == 0) {
        *spec = (struct exec_spec){0};
        return 0;
    }
    exec->session = NULL; /* the caller keeps both */
    exec->spec = (struct exec_spec){0};
    later_free(&exec->later);
    return r;
}
