/* SPDX-License-Identifier: Apache-2.0 */

/* See status.h. */

#include "service/status.h"

#include "run/encode.h"
#include "service/seeds.h"
#include "session/session.h"

/* A list of boxes that is being made. */
struct listing {
    const struct state *state;
    int owner;
    bool sees_all;
    json_t *boxes;
    size_t more; /* boxes that did not fit */
};

static void add_box(struct listing *l, const struct session_box_view *box)
{
    const char *key = state_owner_name(l->state, box->owner);
    if (!l->sees_all && box->owner != l->owner)
        return;
    if (json_array_size(l->boxes) == STATUS_BOXES_MAX) {
        l->more++;
        return;
    }
    json_t *cpu = box->is_measured ? json_real((double)box->cpu_ns / 1e6) : json_null();
    json_t *memory =
        box->is_measured ? json_integer((json_int_t)(box->memory_bytes >> 10)) : json_null();
    (void)json_array_append_new(
        l->boxes, json_pack("{s:s, s:s, s:s, s:s?, s:s, s:o, s:o, s:n, s:o}", "id", box->id,
                      "kind", box->kind, "language", box->language, "key", key[0] ? key : NULL,
                      "state", box->state, "cpu_ms", cpu, "memory_kb", memory, "processes",
                      "since", result_time_json(box->since_s)));
}

static void see_entry(void *context, const struct board_entry *entry)
{
    add_box(context, &(struct session_box_view){.id = entry->id,
                         .kind = entry->kind,
                         .language = entry->language,
                         .owner = entry->owner,
                         .state = entry->is_running ? "running" : "queued",
                         .since_s = entry->since_s});
}

static void see_session(void *context, const struct session_box_view *box)
{
    add_box(context, box);
}

json_t *status_json(struct state *state, int owner)
{
    struct listing l = {.state = state,
        .owner = owner,
        .sees_all = state_is_operator(state, owner),
        .boxes = json_array()};
    const struct spawn_reply *report = engine_report(state->engine);
    struct admit_state a;
    admit_get_state(state->admit, &a);
    board_each(&state->board, see_entry, &l);
    sessions_each_box(state->sessions, see_session, &l);
    return json_pack("{s:{s:s, s:s}, s:{s:i, s:i, s:i, s:i}, s:{s:I, s:I}, s:o, s:I, s:o}",
        "isolation", "level", spawner_level_name(report->level), "cgroup",
        spawner_cgroup_name(report->cgroup), "queue", "running", (int)a.running, "waiting",
        (int)a.waiting, "concurrency", (int)a.concurrency, "size", (int)a.queue, "memory",
        "promised_mb", (json_int_t)a.memory_promised_mb, "limit_mb", (json_int_t)a.memory_mb,
        "boxes", l.boxes, "more", (json_int_t)l.more, "seeds", service_seeds_json(state));
}

/* A quota; 0 means that there is none. */
static json_t *quota_json(uint64_t quota)
{
    return quota ? json_integer((json_int_t)quota) : json_null();
}

static json_t *key_json(struct state *state, size_t index)
{
    const struct key *key = &state->keys.items[index];
    struct admit_use use;
    admit_get_use(state->admit, (int)index, &use);
    json_t *left = use.has_cpu_budget ? json_real(use.cpu_s_left) : json_null();
    return json_pack("{s:s, s:s, s:{s:o, s:o, s:o, s:o}, s:{s:i, s:i, s:i, s:I, s:I, s:o}}",
        "name", key->name, "role", key_role_name(key->role), "quotas", "concurrency",
        quota_json(key->concurrency), "rate_per_s", quota_json(key->rate_per_s), "rate_per_m",
        quota_json(key->rate_per_m), "cpu_s_per_hour", quota_json(key->cpu_s_per_hour), "use",
        "running", (int)use.running, "waiting", (int)use.waiting, "sessions", (int)use.sessions,
        "memory_mb", (json_int_t)use.memory_mb, "processes", (json_int_t)use.processes,
        "cpu_s_left", left);
}

json_t *status_keys_json(struct state *state)
{
    json_t *list = json_array();
    for (size_t i = 0; i < state->keys.count; i++)
        (void)json_array_append_new(list, key_json(state, i));
    return json_pack("{s:o}", "keys", list);
}
