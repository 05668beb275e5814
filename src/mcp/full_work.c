/* SPDX-License-Identifier: Apache-2.0 */

/* The tools of the full surface that run code. Each is an execution: a call answers within 50
 * seconds, with the result or with an id for `wait`. */

#include "mcp/full.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "mcp/execution/execution.h"
#include "mcp/render.h"
#include "service/judge.h"
#include "session/decode.h"
#include "state/state.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OUTPUT_MIN = 1 << 20, WAIT_MAX_S = 50 };

struct work {
    struct mcp *mcp;
    const struct mcp_surface *surface;
    json_t *body; /* of the API */
    struct session *session;
    bool can_elicit; /* the client shows forms */
    /* Does the work: 0 with the answer of the API, or an error. */
    int (*run)(struct work *w, struct execution *e, json_t **ret, struct err *err);
};

static void work_free(void *context)
{
    struct work *w = context;
    session_unref(w->session);
    json_decref(w->body);
    free(w);
}

static void work(struct execution *e, void *context)
{
    struct work *w = context;
    struct err err = {0};
    json_t *answer = NULL;
    int r = w->run(w, e, &answer, &err);
    execution_finish(e, r == 0 && answer ? render_answer(e, answer) : mcp_tool_error(&err));
}

/* Answers for an execution and gives it back. */
static int answer(struct mcp_call *call, struct execution *e, json_t **ret)
{
    int r = execution_answer(e, call, EXECUTION_SOFT_MS, ret);
    if (r == -ECANCELED)
        execution_cancel(e); /* the client never learnt its id */
    execution_unref(e);
    return r;
}

/* Takes the references to body and session. */
static int start(struct mcp_call *call, json_t *body, struct session *session,
    int (*run)(struct work *w, struct execution *e, json_t **ret, struct err *err),
    json_t **ret)
{
    struct execution *e = NULL;
    int r = execution_retry(call, &e, ret);
    if (r != 0) { /* the client answers a pause of an execution that it began before */
        json_decref(body);
        session_unref(session);
        return e ? answer(call, e, ret) : r < 0 ? r : 0;
    }
    struct work *w = xcalloc(1, sizeof(*w));
    struct err err = {0};
    *w = (struct work){.mcp = call->mcp,
        .surface = call->surface,
        .body = body,
        .session = session,
        .can_elicit = mcp_can_elicit(call) && (mcp_is_modern(call) || call->send),
        .run = run};
    size_t bytes = 2 * json_dumpb(body, NULL, 0, JSON_COMPACT);
    if (execution_start(
            mcp_executions(call->mcp), call->owner, bytes, work, work_free, w, &e, &err) < 0) {
        work_free(w);
        *ret = mcp_tool_error(&err);
        return 0;
    }
    return answer(call, e, ret);
}

/* Parses and releases an answer of the API. */
static int take_answer(struct answer *answer, json_t **ret, struct err *err)
{
    if (!answer)
        return state_full(err);
    *ret = json_loadb(answer->text, answer->len, JSON_ALLOW_NUL, NULL);
    answer_release(answer);
    return *ret ? 0 : state_full(err);
}

static void scope(struct work *w, struct execution *e, struct run_spec *spec)
{
    if (spec->runtime)
        spec->cache_scope =
            xasprintf("key %s", state_owner_name(mcp_state(w->mcp), execution_owner(e)));
}

static int run_run(struct work *w, struct execution *e, json_t **ret, struct err *err)
{
    struct state *state = mcp_state(w->mcp);
    struct json_run run;
    struct run_result result;
    struct run_watch watch = {.cancel_fd = execution_cancel_fd(e)};
    int r = json_run_decode(w->body, &state->runtimes, &state->config.mounts, &run, err);
    if (r == 0) {
        const struct service_call call = {
            .spec = &run.spec, .owner = execution_owner(e), .watch = &watch};
        scope(w, e, &run.spec);
        run_result_init(&result, OUTPUT_MIN);
        id_make("run_", result.id);
        r = service_run(state, &call, &result, err);
        if (r == 0)
            r = take_answer(result_answer(&result, ENCODE_UTF8, NULL, state->ledger,
                                execution_owner(e), NULL),
                ret, err);
        run_result_done(&result);
    }
    json_run_done(&run);
    return r;
}

static void copy(json_t *to, const char *as, const json_t *from, const char *name)
{
    json_t *value = json_object_get(from, name);
    if (value)
        (void)json_object_set(to, as, value);
}

static json_t *limits_of(const json_t *arguments)
{
    json_t *limits = json_object();
    copy(limits, "wall_ms", arguments, "timeout_ms");
    copy(limits, "memory_mb", arguments, "memory_mb");
    return limits;
}

/* The body of POST /v1/runs for one program. */
static json_t *run_body(const json_t *arguments, const char *language, json_t *code)
{
    json_t *body = json_pack(
        "{s:s, s:O, s:o}", "language", language, "code", code, "limits", limits_of(arguments));
    copy(body, "stdin", arguments, "stdin");
    copy(body, "args", arguments, "args");
    copy(body, "files", arguments, "files");
    return body;
}

int full_run_code(struct mcp_call *call, const json_t *arguments, json_t **ret)
{
    const char *language = json_string_value(json_object_get(arguments, "language"));
    return start(call, run_body(arguments, language, json_object_get(arguments, "code")), NULL,
        run_run, ret);
}

/* --- in a session */

static void tell_changes(struct work *w, struct execution *e, const json_t *answer)
{
    const json_t *names = json_object_get(answer, "files_changed");
    for (size_t i = 0; i < json_array_size(names); i++) {
        const char *name = json_string_value(json_array_get(names, i));
        cleanup_free char *uri = full_uri(session_id(w->session), name);
        mcp_changed(w->mcp, w->surface, execution_owner(e), NULL, uri);
    }
}

/* Questions about the commands come before the exec begins. */
static int begin_exec(
    struct work *w, struct execution *e, const struct exec_spec *spec, struct err *err)
{
    if (w->can_elicit)
        execution_attend(e, session_id(w->session));
    return session_begin(w->session, spec, execution_cancel_fd(e), err);
}

static int run_exec(struct work *w, struct execution *e, json_t **ret, struct err *err)
{
    struct state *state = mcp_state(w->mcp);
    struct exec_spec spec;
    struct exec_result result;
    struct exec_watch watch = {.cancel_fd = execution_cancel_fd(e)};
    int r = json_exec_decode(w->body, &state->config, false, &spec, err);
    if (r == 0)
        r = begin_exec(w, e, &spec, err);
    if (r == 0) {
        r = session_exec(w->session, &spec, &watch, &result, err);
        if (r == 0)
            r = take_answer(exec_result_answer(&result, NULL), ret, err);
        exec_result_done(&result);
    }
    if (r == 0)
        tell_changes(w, e, *ret);
    exec_spec_done(&spec);
    return r;
}

/* One command on a backend: in a session that is made for it and ends with it. */
static int run_on_backend(struct work *w, struct execution *e, json_t **ret, struct err *err)
{
    struct state *state = mcp_state(w->mcp);
    struct session_spec spec;
    json_t *wanted = json_pack(
        "{s:s, s:O}", "language", "bash", "backend", json_object_get(w->body, "backend"));
    (void)json_object_del(w->body, "backend");
    int r = json_session_decode(wanted, &state->runtimes, &state->config, &spec, err);
    if (r == 0)
        r = session_create(state->sessions, &spec, execution_owner(e), execution_cancel_fd(e),
            &w->session, err);
    session_spec_done(&spec);
    json_decref(wanted);
    if (r < 0)
        return r;
    r = run_exec(w, e, ret, err);
    session_delete(w->session);
    return r;
}

/* The body of POST /v1/sessions/{id}/exec. */
static json_t *exec_body(const json_t *arguments, const char *code)
{
    json_t *body = json_pack("{s:b}", "wait", 1);
    copy(body, "code", arguments, code);
    copy(body, "stdin", arguments, "stdin");
    copy(body, "timeout_ms", arguments, "timeout_ms");
    return body;
}

static int exec(struct mcp_call *call, const json_t *arguments, const char *code, json_t **ret)
{
    struct session *s = full_find_session(call, arguments, ret);
    return s ? start(call, exec_body(arguments, code), s, run_exec, ret) : 0;
}

int full_session_exec(struct mcp_call *call, const json_t *arguments, json_t **ret)
{
    return exec(call, arguments, "code", ret);
}

static int refuse(const char *text, json_t **ret)
{
    *ret = mcp_text_result(text, strlen(text), NULL, true);
    return 0;
}

/* In a session of bash, or without one on a backend or in a fresh box. */
int full_shell(struct mcp_call *call, const json_t *arguments, json_t **ret)
{
    json_t *backend = json_object_get(arguments, "backend");
    bool has_session = json_object_get(arguments, "session_id");
    if (backend && has_session)
        return refuse(
            "Error: a session stays on its backend. Leave out backend, or session_id.", ret);
    if (backend) {
        json_t *body = exec_body(arguments, "command");
        (void)json_object_set(body, "backend", backend);
        return start(call, body, NULL, run_on_backend, ret);
    }
    if (!has_session)
        return start(call, run_body(arguments, "bash", json_object_get(arguments, "command")),
            NULL, run_run, ret);
    struct session *s = full_find_session(call, arguments, ret);
    if (!s)
        return 0;
    bool is_bash = str_eq(session_language(s), "bash");
    session_unref(s);
    if (is_bash)
        return exec(call, arguments, "command", ret);
    return refuse("Error: this session is no shell. Create one with session_create "
                  "{\"language\": \"bash\"}, or use session_exec.",
        ret);
}

/* --- judging */

static int run_judge(struct work *w, struct execution *e, json_t **ret, struct err *err)
{
    struct state *state = mcp_state(w->mcp);
    struct service_judgement judgement = {0};
    struct history_run *record;
    struct answer *answer = NULL;
    enum run_status status;
    char id[ID_MAX];
    cleanup_free char *text = json_dumps(w->body, JSON_COMPACT);
    judge_hash(text ? text : "", text ? strlen(text) : 0, judgement.request_hash);
    judgement.bytes = text ? 2 * strlen(text) : 0;
    int r = json_judge_decode(
        w->body, &state->runtimes, &state->config.mounts, true, &judgement.judge, err);
    if (r == 0) {
        struct judge_spec *spec = &judgement.judge.spec;
        const struct history_entry entry = {
            .mode = RUN_SYNC, .language = spec->solution.runtime->name};
        scope(w, e, &spec->solution);
        id_make("jdg_", id);
        r = history_add(
            state->history, id, state_owner(state, execution_owner(e)), &entry, &record, err);
    }
    if (r == 0) {
        execution_also_cancel(e, history_cancel_fd(record));
        r = service_judge(state, &judgement, execution_owner(e), record, &answer, &status, err);
        execution_also_cancel(e, -1);
        if (answer)
            history_finish(record, status, answer);
        else
            history_forget(record);
        history_unref(record);
        if (r == 0)
            r = take_answer(answer, ret, err);
        else
            answer_release(answer);
    }
    json_judge_done(&judgement.judge);
    return r;
}

/* The body of POST /v1/judge: tests are {stdin, expected}. */
int full_judge(struct mcp_call *call, const json_t *arguments, json_t **ret)
{
    json_t *tests = json_object_get(arguments, "tests");
    json_t *list = json_array();
    for (size_t i = 0; i < json_array_size(tests); i++) {
        const json_t *test = json_array_get(tests, i);
        char name[24];
        json_t *row = json_object();
        (void)snprintf(name, sizeof(name), "%zu", i + 1);
        (void)json_object_set_new(row, "name", json_string(name));
        copy(row, "stdin", test, "stdin");
        copy(row, "expected", test, "expected");
        (void)json_array_append_new(list, row);
    }
    json_t *body = json_pack("{s:o}", "tests", list);
    copy(body, "language", arguments, "language");
    copy(body, "code", arguments, "code");
    if (json_object_get(arguments, "timeout_ms"))
        (void)json_object_set_new(body, "limits", limits_of(arguments));
    return start(call, body, NULL, run_judge, ret);
}

int full_wait(struct mcp_call *call, const json_t *arguments, json_t **ret)
{
    const char *id = mcp_text(arguments, "id", ID_MAX - 1);
    const json_t *seconds = json_object_get(arguments, "timeout_s");
    double wait_s = seconds ? json_number_value(seconds) : WAIT_MAX_S;
    unsigned pause;
    struct execution *e =
        id ? execution_find(mcp_executions(call->mcp), call->owner, id, &pause) : NULL;
    if (!e) {
        static const char text[] =
            "Error: there is no work with this id. It may have ended long "
            "ago, or the server was restarted: start it again.";
        *ret = mcp_text_result(text, strlen(text), NULL, true);
        return 0;
    }
    int r = execution_answer(
        e, call, (uint64_t)((wait_s < WAIT_MAX_S ? wait_s : WAIT_MAX_S) * 1000), ret);
    execution_unref(e);
    return r;
}
