/* SPDX-License-Identifier: Apache-2.0 */

/* Sessions and results of execs as the JSON of docs/sessions.md. */

#include "session/internal.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"
#include "run/encode.h"
#include "service/service.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char *const state_names[SESSION_STATES] = {
    [SESSION_STARTING] = "starting",
    [SESSION_IDLE] = "idle",
    [SESSION_BUSY] = "busy",
    [SESSION_DEAD] = "dead",
    [SESSION_EXPIRED] = "expired",
};

static json_t *time_json(int64_t seconds)
{
    char text[32];
    struct tm tm;
    time_t when = (time_t)seconds;
    (void)gmtime_r(&when, &tm);
    (void)strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &tm);
    return json_string(text);
}

/* When it will be gone if nobody uses it any more. */
static int64_t expires_s(const struct session *s)
{
    uint64_t now = clock_ms();
    uint64_t end_ms = s->used_ms + s->idle_ms;
    if (s->state == SESSION_BUSY || end_ms > s->end_ms)
        end_ms = s->end_ms;
    return (int64_t)time(NULL) + ((int64_t)end_ms - (int64_t)now) / 1000;
}

static json_t *limits_json(const struct run_limits *limits)
{
    json_t *object = json_object();
    for (size_t i = 0; i < limit_count; i++) {
        const struct limit_info *info = &limit_table[i];
        uint64_t value = *(const uint64_t *)((const char *)limits + info->offset);
        (void)json_object_set_new(object, info->name,
            info->scale == 1 ? json_integer((json_int_t)value)
                             : json_real((double)value / info->scale));
    }
    return object;
}

/* The lock is held. */
static json_t *to_json(const struct session *s)
{
    bool is_gone = s->state == SESSION_DEAD || s->state == SESSION_EXPIRED;
    const struct spawn_reply *seal = engine_report(s->all->service->engine);
    json_t *json = json_pack("{s:s, s:s, s:s, s:s, s:s?, s:s?, s:o, s:o, s:s, s:I, s:o, "
                             "s:{s:s, s:s, s:s}}",
        "id", s->id, "name", s->name, "language", s->spec.runtime->name, "state",
        state_names[s->state], "reason", is_gone ? s->reason : NULL, "message",
        is_gone ? s->message : NULL, "created_at", time_json(s->created_s), "expires_at",
        time_json(expires_s(s)), "cwd", s->cwd, "execution_count",
        (json_int_t)s->execution_count, "limits", limits_json(&s->spec.limits), "isolation",
        "level", spawner_level_name(seal->level), "cgroup", spawner_cgroup_name(seal->cgroup),
        "start", s->is_warm ? "warm" : "cold");
    if (s->origin[0])
        (void)json_object_set_new(json, "forked_from", json_string(s->origin));
    return json;
}

json_t *session_json(struct session *s)
{
    (void)pthread_mutex_lock(&s->lock);
    session_refresh(s);
    json_t *json = to_json(s);
    (void)pthread_mutex_unlock(&s->lock);
    return json;
}

json_t *sessions_json(struct sessions *all, int owner)
{
    const char *name = service_owner_name(all->service, owner);
    json_t *list = json_array();
    (void)pthread_mutex_lock(&all->lock);
    for (struct session *s = all->first; s; s = s->next) {
        if (str_eq(s->owner, name) && !s->checkpoint[0])
            (void)json_array_append_new(list, session_json(s));
    }
    (void)pthread_mutex_unlock(&all->lock);
    return json_pack("{s:o}", "sessions", list);
}

void exec_result_done(struct exec_result *result)
{
    capture_done(&result->out);
    capture_done(&result->err);
    json_decref(result->result);
    json_decref(result->displays);
    json_decref(result->error);
    json_decref(result->files_changed);
    free(result->cwd);
    if (result->service)
        service_release(result->service, result->held);
    *result = (struct exec_result){0};
}

static json_t *stream_json(const struct capture *c)
{
    size_t len;
    cleanup_free char *text = capture_text(c, &len);
    return result_text_json(text, len, ENCODE_UTF8);
}

static json_t *or_null(json_t *value)
{
    return value ? json_incref(value) : json_null();
}

json_t *exec_result_json(const struct exec_result *r)
{
    return json_pack(
        "{s:s, s:o, s:s, s:o, s:o, s:b, s:b, s:I, s:I, s:s?, s:s?, s:o, s:O, s:b, s:o, s:o, "
        "s:b, s:I, s:s, s:b, s:o, s:o, s:i}",
        "status", run_status_name(r->status), "exit_code",
        r->exited ? json_integer(r->exit_code) : json_null(), "message", r->message, "stdout",
        stream_json(&r->out), "stderr", stream_json(&r->err), "stdout_truncated",
        capture_is_cut(&r->out), "stderr_truncated", capture_is_cut(&r->err), "stdout_bytes",
        (json_int_t)r->out.total, "stderr_bytes", (json_int_t)r->err.total, "stdout_file",
        r->out_file, "stderr_file", r->err_file, "result", or_null(r->result), "displays",
        r->displays, "displays_truncated", r->displays_cut, "error", or_null(r->error),
        "files_changed", or_null(r->files_changed), "files_changed_truncated", r->files_cut,
        "execution_count", (json_int_t)r->execution_count, "cwd", r->cwd ? r->cwd : "/box",
        "state_lost", r->state_lost, "usage", result_usage_json(&r->usage), "limits_hit",
        result_hits_json(r->limits_hit), "tool_calls", (int)r->tool_calls);
}
