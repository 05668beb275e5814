/* SPDX-License-Identifier: Apache-2.0 */

/* Sessions end with their server process, but their records do not. After a restart, a request
 * for an old session is answered with "dead" instead of "not found". The records are in the
 * store, beside those of runs. */

#include "session/internal.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"
#include "run/encode.h"
#include "state/state.h"
#include "store/run_store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

void session_remember(struct session *s)
{
    struct run_store *store = s->all->state->store;
    json_t *json = store ? session_json(s) : NULL;
    cleanup_free char *text = json ? json_dumps(json, JSON_COMPACT | RESULT_JSON_FLAGS) : NULL;
    json_decref(json);
    if (!text)
        return;
    struct answer *answer = answer_of_text(text);
    struct run_row row = {.id = xstrdup(s->id),
        .owner = xstrdup(s->owner),
        .status = xstrdup("session"),
        .created_ms = s->created_s * 1000,
        .answer = answer_keep(answer)};
    answer_release(answer);
    run_store_put_later(store, &row, STORE_PROMISED);
}

void session_forget(struct session *s)
{
    if (s->all->state->store)
        run_store_remove(s->all->state->store, s->id);
}

/* The text of a field; "" when it is null or missing. */
static const char *text_of(const json_t *kept, const char *field)
{
    const char *text = json_string_value(json_object_get(kept, field));
    return text ? text : "";
}

/* The inverse of result_time_json(). */
static int64_t time_of(const json_t *kept, const char *field)
{
    struct tm tm = {0};
    return strptime(text_of(kept, field), "%Y-%m-%dT%H:%M:%SZ", &tm) ? timegm(&tm) : 0;
}

/* Makes a dead session from its stored record. */
static struct session *revive(struct sessions *all, const char *id, int owner, json_t *kept)
{
    struct session_spec spec = {
        .runtime = runtime_find(&all->state->runtimes, text_of(kept, "language"))};
    if (!spec.runtime)
        return NULL;
    (void)snprintf(spec.name, sizeof(spec.name), "%s", text_of(kept, "name"));
    limits_fill(&spec.limits, &spec.runtime->limits);
    struct session *s = session_new(all, &spec, owner);
    (void)snprintf(s->id, sizeof(s->id), "%s", id);
    (void)snprintf(s->origin, sizeof(s->origin), "%s", text_of(kept, "parent"));
    (void)snprintf(
        s->rolled_back_to, sizeof(s->rolled_back_to), "%s", text_of(kept, "from_checkpoint"));
    s->rolled_back_s = time_of(kept, "rolled_back_at");
    s->created_s = time_of(kept, "created_at");
    s->state = SESSION_DEAD;
    s->is_past = true;
    s->past = json_incref(kept);
    s->reason = "server_restarted";
    (void)snprintf(
        s->message, sizeof(s->message), "the server was restarted, and no session outlives it");
    return s;
}

void session_tell_past(const struct session *s, json_t *json)
{
    static const char *const fields[] = {
        "cwd", "limits", "isolation", "network", "backend", "secrets", "mounts", "image"};
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
        const json_t *value = json_object_get(s->past, fields[i]);
        if (value && !json_is_null(value))
            (void)json_object_set_new(json, fields[i], json_deep_copy(value));
    }
    json_t *place = json_object_get(json, "backend");
    (void)json_object_set_new(place, "state", json_string("lost"));
    (void)json_object_set_new(place, "detail", json_string(s->message));
}

struct session *session_recall(struct sessions *all, const char *id, int owner)
{
    struct run_row row;
    struct session *s = NULL;
    if (!all->state->store || !str_has_prefix(id, "ses_") ||
        run_store_get(all->state->store, id, NULL, owner, &row) < 0)
        return NULL;
    if (str_eq(row.owner, state_owner_name(all->state, owner)) && row.finished_ms &&
        row.answer) {
        json_t *kept = json_loadb(row.answer->text, row.answer->len, 0, NULL);
        s = revive(all, id, owner, kept);
        json_decref(kept);
    }
    run_row_release(&row);
    return s;
}
