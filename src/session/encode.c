/* SPDX-License-Identifier: Apache-2.0 */

/* Encodes sessions and exec results as the JSON of docs/sessions.md. */

#include "session/backend.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"
#include "network/policy.h"
#include "run/encode.h"
#include "state/state.h"
#include "json/body.h"

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

/* When the session will expire if it is not used any more. */
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

static json_t *name_json(const char *name)
{
    return name[0] ? json_string(name) : json_null();
}

static json_t *secrets_json(const struct session *s, const struct network_policy *policy)
{
    const struct secret_table *table = &s->all->state->config.secrets;
    json_t *list = json_array();
    for (size_t i = 0; policy && i < table->count; i++) {
        if (policy->secrets >> i & 1)
            (void)json_array_append_new(list, json_string(table->items[i].name));
    }
    return list;
}

static json_t *mounts_json(const struct session *s)
{
    const struct mount_table *table = &s->all->state->config.mounts;
    json_t *list = json_array();
    for (size_t i = 0; i < s->spec.mount_count; i++) {
        const struct run_mount *mount = &s->spec.mounts[i];
        (void)json_array_append_new(
            list, json_pack("{s:s, s:s, s:s}", "name", table->items[mount->source].name, "path",
                      mount->path, "mode", mount->writable ? "rw" : "ro"));
    }
    return list;
}

/* Where the state of a session comes from. */
static void add_lineage(json_t *json, const struct session *s)
{
    bool was_back = s->rolled_back_to[0];
    (void)json_object_set_new(json, "parent", name_json(s->origin));
    (void)json_object_set_new(json, "from_checkpoint", name_json(s->rolled_back_to));
    (void)json_object_set_new(
        json, "rolled_back_at", was_back ? result_time_json(s->rolled_back_s) : json_null());
}

/* The lock is held. */
static json_t *to_json(struct session *s)
{
    bool is_gone = s->state == SESSION_DEAD || s->state == SESSION_EXPIRED;
    const struct spawn_reply *seal = engine_report(s->all->state->engine);
    bool is_box = !s->spec.place;
    json_t *json = json_pack("{s:s, s:s, s:s, s:s, s:s?, s:s?, s:o, s:o, s:s, s:I, s:o, "
                             "s:{s:s?, s:s, s:s}}",
        "id", s->id, "name", s->name, "language", s->spec.runtime->name, "state",
        state_names[s->state], "reason", is_gone ? s->reason : NULL, "message",
        is_gone ? s->message : NULL, "created_at", result_time_json(s->created_s), "expires_at",
        result_time_json(expires_s(s)), "cwd", s->cwd, "execution_count",
        (json_int_t)s->execution_count, "limits", limits_json(&s->spec.limits), "isolation",
        "level", is_box ? spawner_level_name(seal->level) : NULL, "cgroup",
        spawner_cgroup_name(is_box ? seal->cgroup : CGROUP_NONE), "start",
        s->is_warm ? "warm" : "cold");
    cleanup_free struct network_policy *policy = session_network_policy(s->network);
    (void)json_object_set_new(json, "network",
        is_box ? network_policy_json(policy) : json_string(place_network(s->spec.place)));
    (void)json_object_set_new(json, "backend", session_backend_json(s));
    (void)json_object_set_new(json, "secrets", secrets_json(s, policy));
    (void)json_object_set_new(json, "mounts", mounts_json(s));
    (void)json_object_set_new(
        json, "image", s->spec.image ? json_string(s->spec.image->id) : json_null());
    add_lineage(json, s);
    if (s->past)
        session_tell_past(s, json);
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

static void see_one(struct session *s,
    void (*see)(void *context, const struct session_box_view *box), void *context)
{
    (void)pthread_mutex_lock(&s->lock);
    if (s->box.socket >= 0)
        see(context, &(struct session_box_view){.id = s->id,
                         .kind = "session",
                         .language = s->spec.runtime->name,
                         .owner = s->owner_index,
                         .state = state_names[s->state],
                         .since_s = s->created_s,
                         .is_measured = s->is_measured,
                         .cpu_ns = s->seen_cpu_ns,
                         .memory_bytes = s->seen_memory});
    (void)pthread_mutex_unlock(&s->lock);
}

void sessions_each_box(struct sessions *all,
    void (*see)(void *context, const struct session_box_view *box), void *context)
{
    (void)pthread_mutex_lock(&all->lock);
    for (struct session *s = all->first; s; s = s->next) {
        if (!session_is_hidden(s))
            see_one(s, see, context);
    }
    (void)pthread_mutex_unlock(&all->lock);
}

json_t *sessions_json(struct sessions *all, int owner)
{
    const char *name = state_owner_name(all->state, owner);
    json_t *list = json_array();
    (void)pthread_mutex_lock(&all->lock);
    for (struct session *s = all->first; s; s = s->next) {
        if (str_eq(s->owner, name) && !session_is_hidden(s))
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
    json_decref(result->backend);
    json_decref(result->approvals);
    json_decref(result->files_changed);
    network_report_free(result->network);
    free(result->cwd);
    purse_close(&result->purse);
    *result = (struct exec_result){0};
}

/* A result, and an error of Hermes itself (or NULL) that replaces the code's error. */
struct telling {
    const struct exec_result *result;
    const json_t *error;
};

static void write_stream(struct json_text *t, const char *name, const struct capture *c)
{
    char notice[CAPTURE_NOTICE];
    struct iovec pieces[CAPTURE_PIECES];
    capture_pieces(c, notice, pieces);
    json_text_add(t, name);
    json_text_open(t);
    for (size_t i = 0; i < CAPTURE_PIECES; i++)
        json_text_part(t, pieces[i].iov_base, pieces[i].iov_len);
    json_text_close(t);
}

static void write_int(struct json_text *t, const char *name, int64_t number)
{
    json_text_add(t, name);
    json_text_int(t, number);
}

static void write_bool(struct json_text *t, const char *name, bool is_true)
{
    json_text_add(t, name);
    json_text_bool(t, is_true);
}

static void write_word(struct json_text *t, const char *name, const char *word)
{
    json_text_add(t, name);
    json_text_word(t, word);
}

static void write_value(struct json_text *t, const char *name, const json_t *value)
{
    json_text_add(t, name);
    if (value)
        json_text_value(t, value);
    else
        json_text_add(t, "null");
}

static void write_result(struct json_text *t, const void *context)
{
    const struct telling *telling = context;
    const struct exec_result *r = telling->result;
    write_word(t, "{\"status\":", run_status_name(r->status));
    if (r->exited)
        write_int(t, ",\"exit_code\":", r->exit_code);
    else
        json_text_add(t, ",\"exit_code\":null");
    write_word(t, ",\"message\":", r->message);
    write_stream(t, ",\"stdout\":", &r->out);
    write_stream(t, ",\"stderr\":", &r->err);
    write_bool(t, ",\"stdout_truncated\":", capture_is_cut(&r->out));
    write_bool(t, ",\"stderr_truncated\":", capture_is_cut(&r->err));
    write_int(t, ",\"stdout_bytes\":", (int64_t)r->out.total);
    write_int(t, ",\"stderr_bytes\":", (int64_t)r->err.total);
    write_word(t, ",\"stdout_file\":", r->out_file);
    write_word(t, ",\"stderr_file\":", r->err_file);
    write_value(t, ",\"result\":", r->result);
    write_value(t, ",\"displays\":", r->displays);
    write_bool(t, ",\"displays_truncated\":", r->displays_cut);
    write_value(t, ",\"error\":", telling->error ? telling->error : r->error);
    write_value(t, ",\"files_changed\":", r->files_changed);
    write_bool(t, ",\"files_changed_truncated\":", r->files_cut);
    write_int(t, ",\"execution_count\":", r->execution_count);
    write_word(t, ",\"cwd\":", r->cwd ? r->cwd : "/box");
    write_value(t, ",\"backend\":", r->backend);
    write_bool(t, ",\"state_lost\":", r->state_lost);
    json_text_add(t, ",\"usage\":");
    result_write_usage(t, &r->usage);
    json_text_add(t, ",\"limits_hit\":");
    result_write_hits(t, r->limits_hit);
    json_text_add(t, ",\"network\":");
    network_report_write(t, r->network);
    const json_t *approvals = r->network ? r->network->approvals : r->approvals;
    if (approvals)
        write_value(t, ",\"approvals\":", approvals);
    write_int(t, ",\"tool_calls\":", r->tool_calls);
    json_text_add(t, "}");
}

struct answer *exec_result_answer(struct exec_result *result, const struct err *failure)
{
    json_t *error = failure ? json_error(failure) : NULL;
    const struct telling telling = {.result = result, .error = error};
    struct answer *answer = json_text_answer(
        result->purse.ledger, result->purse.owner, &result->purse, write_result, &telling);
    json_decref(error);
    return answer;
}
