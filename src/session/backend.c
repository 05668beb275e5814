/* SPDX-License-Identifier: Apache-2.0 */

/* See backend.h. */

#include "session/backend.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/os/fs.h"
#include "base/str.h"
#include "base/utf8.h"
#include "state/state.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Whether the server itself enforces this limit of a session; it does so for these only. */
static bool is_kept(const char *limit)
{
    return str_eq(limit, "wall_ms") || str_eq(limit, "output_kb");
}

/* The limit of a place with this name; PLACE_LIMITS when places have none. */
static uint32_t limit_of_place(const char *name)
{
    uint32_t i = 0;
    while (i < PLACE_LIMITS && !str_eq(place_limit_name(i), name))
        i++;
    return i;
}

/* `limit` is NULL when the place has not named it. */
static int refuse_limit(const char *backend, const char *limit, struct err *err)
{
    (void)err_set(err, ERR_LIMIT, ENOTSUP,
        "backend %s cannot enforce %s; leave it out, or set limits_mode to best_effort",
        backend, limit ? limit : "a limit, and does not say which");
    (void)snprintf(
        err->field, sizeof(err->field), "limits%s%s", limit ? "." : "", limit ? limit : "");
    err->kind = place_error_name(PLACE_LIMIT);
    return -ENOTSUP;
}

/* Fills in the limits of the place: from the request, otherwise from its row. */
static int take_limits(struct session_spec *spec, struct err *err)
{
    const struct place_row *row = spec->place;
    uint32_t can = place_may_enforce(row->kind);
    struct run_limits limits = spec->limits;
    spec->place_limits = row->limits;
    for (size_t i = 0; i < limit_count; i++) {
        const struct limit_info *info = &limit_table[i];
        uint64_t value = *limit_member(&limits, info);
        uint32_t limit = limit_of_place(info->name);
        bool is_possible = limit < PLACE_LIMITS && (can & (1u << limit));
        if (!value || is_kept(info->name))
            continue;
        if (!is_possible && !spec->is_best_effort)
            return refuse_limit(spec->backend, info->name, err);
        if (!is_possible)
            continue;
        if (row->limits.value[limit] && value > row->limits.value[limit]) {
            char field[64];
            (void)snprintf(field, sizeof(field), "limits.%s", info->name);
            return err_field(err, field, "%s is at most %g on backend %s", info->name,
                (double)row->limits.value[limit] / info->scale, row->name);
        }
        spec->place_limits.value[limit] = (uint32_t)value;
        if (!spec->is_best_effort)
            spec->place_limits.asked |= 1u << limit;
    }
    return 0;
}

int session_backend_check(
    const struct state *state, struct session_spec *spec, int owner, struct err *err)
{
    const struct place_table *places = &state->config.places;
    bool is_native = !spec->backend[0] || str_eq(spec->backend, place_kind_name(PLACE_NATIVE));
    if (spec->is_best_effort && is_native)
        return err_field(err, "limits_mode",
            "limits_mode best_effort is for backends; a box enforces every limit");
    if (is_native)
        return 0;
    const char *key = state_owner_name(state, owner);
    int number = place_table_find(places, spec->backend, key);
    if (number < 0)
        return err_set(err, ERR_NOT_FOUND, ENOENT,
            "you have no backend `%.32s`; GET /v1/backends lists your backends", spec->backend);
    if (!str_eq(spec->runtime->name, "bash"))
        return err_field(
            err, "language", "sessions on backends run bash only; set language to bash");
    if (spec->mount_count || spec->network || spec->secrets.count || spec->image)
        return err_field(err,
            spec->mount_count     ? "mounts"
            : spec->network       ? "network"
            : spec->secrets.count ? "secrets"
                                  : "image",
            "mounts, network, secrets and image are for boxes of Hermes; backend %s has none",
            spec->backend);
    spec->place = &places->rows[number];
    spec->place_number = (uint32_t)number;
    return take_limits(spec, err);
}

int session_backend_words(const struct session_box_spec *spec, int *ret_fd, struct err *err)
{
    cleanup_buf struct buf words;
    buf_init(&words, PLACE_WORDS_MAX);
    int r = buf_append(&words, &spec->place_request, sizeof(spec->place_request));
    if (r == 0)
        r = buf_append(&words, spec->place->cwd, strlen(spec->place->cwd) + 1);
    for (size_t i = 0; r == 0 && i < spec->env->count; i++)
        r = buf_append(&words, spec->env->items[i], strlen(spec->env->items[i]) + 1);
    if (r < 0)
        return err_set(err, ERR_TOO_LARGE, E2BIG,
            "the variables of a session are too large; give a part as files");
    *ret_fd = fs_memfd_sealed("words", words.data, words.len);
    return *ret_fd < 0 ? err_set(err, ERR_UNAVAILABLE, -*ret_fd, "cannot make a file in memory")
                       : 0;
}

void session_backend_take(struct session *s, const struct place_event *event)
{
    (void)pthread_mutex_lock(&s->cause_lock);
    (void)place_words(
        s->cause, sizeof(s->cause), event->words, strnlen(event->words, sizeof(event->words)));
    if (event->event.kind == EVENT_PLACE && event->event.flags <= PLACE_GONE)
        s->place_state = event->event.flags;
    (void)pthread_mutex_unlock(&s->cause_lock);
}

void session_backend_begin(struct session *s)
{
    session_backend_take(
        s, &(struct place_event){.event = {.kind = EVENT_PLACE, .flags = PLACE_READY}});
}

void session_backend_end(struct session *s)
{
    (void)pthread_mutex_lock(&s->cause_lock);
    if (s->place_state != PLACE_GONE)
        (void)snprintf(s->cause, sizeof(s->cause),
            "the process of hermes-places that served this session has ended");
    s->place_state = PLACE_GONE;
    (void)snprintf(s->message, sizeof(s->message), "backend %s: %s: %s", s->spec.place->name,
        place_error_name(PLACE_LOST), s->cause);
    (void)pthread_mutex_unlock(&s->cause_lock);
}

int session_backend_failed(
    struct session *s, const struct spawn_event *event, const char *said, struct err *err)
{
    uint32_t kind = event->kind == EVENT_FAILED && event->flags ? event->flags : PLACE_REFUSED;
    const char *name = place_error_name(kind);
    char words[PLACE_SAYS];
    (void)pthread_mutex_lock(&s->cause_lock);
    (void)snprintf(words, sizeof(words), "%s", s->cause);
    (void)pthread_mutex_unlock(&s->cause_lock);
    if (!words[0] && event->kind != EVENT_FAILED) {
        char quoted[PLACE_SAYS / 2];
        place_quote(quoted, sizeof(quoted), said);
        (void)snprintf(words, sizeof(words), "the shell there ended before it was ready%s%s",
            said[0] ? ": " : "", said[0] ? quoted : "");
    }
    if (kind == PLACE_LIMIT) {
        (void)refuse_limit(
            s->spec.place->name, place_limit_name((uint32_t)event->wait_status), err);
        size_t len = strlen(err->message);
        len += (size_t)snprintf(err->message + len, sizeof(err->message) - len, ": ");
        (void)place_words(err->message + len, sizeof(err->message) - len, words, strlen(words));
        return -ENOTSUP;
    }
    (void)err_set(err, ERR_BACKEND, EHOSTUNREACH, "backend %s: %s: %s", s->spec.place->name,
        name, words[0] ? words : "hermes-places does not run now; try again in a moment");
    err->kind = name;
    return -EHOSTUNREACH;
}

int session_backend_refuse(const struct session *s, const char *what, struct err *err)
{
    if (!s->spec.place)
        return 0;
    return err_set(err, ERR_UNSUPPORTED, ENOSYS,
        "backend %s (%s) has no %s; use a session in a box", s->spec.place->name,
        place_kind_name(s->spec.place->kind), what);
}

/* The limits that are in force for a session, and the limits that are not. */
static json_t *limits_of(const struct session *s)
{
    json_t *json = json_object();
    for (size_t i = 0; s->spec.place && i < limit_count; i++) {
        const struct limit_info *info = &limit_table[i];
        uint32_t limit = limit_of_place(info->name);
        bool in_force = limit < PLACE_LIMITS && (s->place_bits & (1u << limit));
        if (is_kept(info->name))
            continue;
        uint32_t value = in_force ? s->spec.place_request.limits.value[limit] : 0;
        (void)json_object_set_new(json, info->name,
            !value             ? json_string("not_enforced")
            : info->scale == 1 ? json_integer(value)
                               : json_real((double)value / info->scale));
    }
    return json;
}

/* Says why the place is not ready, and what waits for it. cause_lock is held. */
static json_t *detail_json(const struct session *s, unsigned state)
{
    char text[2 * PLACE_SAYS];
    if (state == PLACE_READY)
        return json_null();
    if (state != PLACE_DEGRADED)
        return json_string(s->place_state == PLACE_GONE ? s->cause : s->message);
    (void)snprintf(text, sizeof(text),
        "%s; Hermes ends nothing there and tries for %u s to join the shell again; new "
        "commands, files and terminals wait for that",
        s->cause, s->spec.place->reconnect_s);
    return json_string(text);
}

const char *session_backend_name(const struct session *s)
{
    const json_t *past = json_object_get(s->past, "backend");
    const char *kind = json_string_value(json_object_get(past, "kind"));
    if (s->spec.place)
        return s->spec.place->name;
    return kind && !str_eq(kind, place_kind_name(PLACE_NATIVE))
               ? json_string_value(json_object_get(past, "name"))
               : NULL;
}

json_t *session_backend_json(struct session *s)
{
    static const char *const states[] = {
        [PLACE_READY] = "ready", [PLACE_DEGRADED] = "degraded", [PLACE_GONE] = "lost"};
    static const struct place_row native = {.kind = PLACE_NATIVE};
    const struct place_row *row = s->spec.place ? s->spec.place : &native;
    bool is_gone = s->state == SESSION_DEAD || s->state == SESSION_EXPIRED;
    (void)pthread_mutex_lock(&s->cause_lock);
    unsigned state = is_gone && s->box.socket < 0 ? PLACE_GONE : s->place_state;
    json_t *json = json_pack("{s:s, s:s, s:s, s:s, s:o, s:s, s:s, s:o}", "name",
        row->kind == PLACE_NATIVE ? place_kind_name(row->kind) : row->name, "kind",
        place_kind_name(row->kind), "id", s->id, "state", states[state], "detail",
        detail_json(s, state), "isolation", place_isolation(row), "scope", place_scope(row),
        "limits", limits_of(s));
    (void)pthread_mutex_unlock(&s->cause_lock);
    if (row->kind == PLACE_PLUGIN)
        (void)json_object_set_new(json, "lifetime_s", json_integer(row->lifetime_s));
    return json;
}

void session_backend_note(
    const struct session *s, int r, uint64_t latency_ms, const struct err *err)
{
    if (!s->spec.place || (r < 0 && !err->kind))
        return;
    struct backend_seen *seen = &s->all->seen[s->spec.place_number];
    (void)pthread_mutex_lock(&s->all->lock);
    seen->is_tried = true;
    seen->kind = r < 0 ? err->kind : NULL;
    seen->latency_ms = latency_ms;
    seen->enforces = r < 0 ? place_enforces(s->spec.place->kind) : s->place_bits;
    seen->detail[0] = '\0';
    if (r < 0)
        (void)snprintf(seen->detail, sizeof(seen->detail), "%.*s",
            (int)utf8_floor(err->message, strnlen(err->message, sizeof(seen->detail) - 1)),
            err->message);
    (void)pthread_mutex_unlock(&s->all->lock);
}

static json_t *enforced_by(const struct place_row *row, const struct backend_seen *seen)
{
    json_t *list = json_array();
    uint32_t bits = seen->is_tried ? seen->enforces : place_enforces(row->kind);
    for (size_t i = 0; i < limit_count; i++) {
        uint32_t limit = limit_of_place(limit_table[i].name);
        if (row->kind == PLACE_NATIVE || is_kept(limit_table[i].name) ||
            (limit < PLACE_LIMITS && (bits & (1u << limit))))
            (void)json_array_append_new(list, json_string(limit_table[i].name));
    }
    return list;
}

/* A probe is newer than the last session, but knows less: only that there is an answer. */
static json_t *row_json(const struct place_row *row, const struct backend_seen *seen)
{
    bool is_known = seen->is_tried || seen->probed_ms;
    const char *kind = seen->is_tried ? seen->kind : NULL;
    const char *detail = seen->detail;
    bool was_away = kind && str_eq(kind, place_error_name(PLACE_UNREACHABLE));
    if (seen->probed_ms && (seen->probe_error || was_away)) {
        kind = seen->probe_error ? place_error_name(seen->probe_error) : NULL;
        detail = seen->probe_words;
    }
    uint64_t latency_ms = seen->is_tried ? seen->latency_ms : seen->probe_latency_ms;
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:o, s:o}", "name", row->name, "kind",
        place_kind_name(row->kind), "state",
        !is_known ? "unknown"
        : kind    ? kind
                  : "ready",
        "detail", detail, "isolation", place_isolation(row), "enforces", enforced_by(row, seen),
        "latency_ms", is_known ? json_integer((json_int_t)latency_ms) : json_null());
}

json_t *session_backends_json(const struct state *state, int owner)
{
    const struct place_table *places = &state->config.places;
    const char *key = state_owner_name(state, owner);
    struct sessions *all = state->sessions;
    struct place_row native = {.kind = PLACE_NATIVE};
    json_t *list = json_array();
    (void)snprintf(native.name, sizeof(native.name), "%s", place_kind_name(PLACE_NATIVE));
    json_t *first = row_json(&native, &(struct backend_seen){.is_tried = true});
    (void)json_object_set_new(first, "latency_ms", json_null());
    (void)json_array_append_new(list, first);
    for (uint32_t i = 0; i < places->count; i++)
        if (place_row_is_for(&places->rows[i], key))
            session_backend_probe(state, i);
    (void)pthread_mutex_lock(&all->lock);
    for (uint32_t i = 0; i < places->count; i++) {
        if (place_row_is_for(&places->rows[i], key))
            (void)json_array_append_new(list, row_json(&places->rows[i], &all->seen[i]));
    }
    (void)pthread_mutex_unlock(&all->lock);
    return json_pack("{s:o}", "backends", list);
}
