/* SPDX-License-Identifier: Apache-2.0 */

/* Cleans up containers behind sessions. One process for all rows. It changes only containers
 * that carry the labels of this installation and of a row of its table:
 *
 *   made for one session, no program of ours in it   removed
 *   kept, running, no program of ours in it          stopped; the next session starts it again
 *
 * and only after it has seen them so for longer than a cut session may stay away. It counts
 * that time itself: by the wall clock, which jumps, a lease could be old at once or never. A
 * container that is kept is never removed: it may hold work. */

#include "backend/docker.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/str.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SEEN_MAX = 512, PERIOD_MAX_S = 30, GRACE_S = 30, ASK_MS = 20000 };

struct seen {
    char id[65];
    uint64_t since_ms; /* idle since then */
    bool is_listed;    /* in this round */
};

struct tidy {
    struct backend b; /* the row of this turn */
    struct engine engine;
    const char *control_dir;
    struct seen seen[SEEN_MAX];
};

static bool is_id(const char *id)
{
    return id && strlen(id) == 64 && strspn(id, "0123456789abcdef") == 64;
}

/* 0 when an exec runs; 1 when none does; negative when nothing is known. */
static int is_quiet(struct tidy *t, const json_t *container)
{
    const json_t *execs = json_object_get(container, "ExecIDs");
    for (size_t i = 0; i < json_array_size(execs); i++) {
        const char *id = json_string_value(json_array_get(execs, i));
        char path[DOCKER_PATH];
        struct engine_answer a = {0};
        if (!is_id(id))
            return -1;
        (void)snprintf(path, sizeof(path), "/exec/%s/json", id);
        int r = engine_ask(&t->engine, "GET", path, NULL, false, &a);
        bool runs =
            r < 0 || (a.status != 404 && !json_is_false(json_object_get(a.json, "Running")));
        engine_answer_done(&a);
        if (runs)
            return r < 0 ? r : 0;
    }
    return 1;
}

static struct seen *find(struct tidy *t, const char *id)
{
    struct seen *unused = NULL;
    for (size_t i = 0; i < SEEN_MAX; i++) {
        if (str_eq(t->seen[i].id, id))
            return &t->seen[i];
        if (!unused && !t->seen[i].id[0])
            unused = &t->seen[i];
    }
    if (unused) {
        (void)snprintf(unused->id, sizeof(unused->id), "%s", id);
        unused->since_ms = clock_ms();
    }
    return unused;
}

static bool runs(const json_t *container)
{
    return json_is_true(json_object_get(json_object_get(container, "State"), "Running"));
}

/* Seconds that a container must have been idle before it is stopped or removed. */
static uint64_t term_s(const struct place_row *row, bool is_kept)
{
    uint64_t away_s = row->reconnect_s + (row->idle_s < GRACE_S ? row->idle_s : GRACE_S);
    return is_kept && row->idle_s > away_s ? row->idle_s : away_s;
}

static void finish(struct tidy *t, const char *id, bool is_kept)
{
    char path[DOCKER_PATH];
    struct engine_answer a = {0};
    (void)docker_path(path, sizeof(path), id, is_kept ? "/stop?t=1" : "?force=1&v=1");
    int r = engine_ask(&t->engine, is_kept ? "POST" : "DELETE", path, NULL, false, &a);
    log_event(LOG_INFO, is_kept ? "an idle container is stopped" : "a container is removed",
        "container", id, "error", r < 0 ? strerror(-r) : a.said, (char *)NULL);
    engine_answer_done(&a);
}

/* Looks at one container, alone: no session opens one at this time. */
static void look(struct tidy *t, const char *id)
{
    char path[DOCKER_PATH];
    struct engine_answer a = {0};
    cleanup_close int lock = docker_lock(t->control_dir, true);
    (void)docker_path(path, sizeof(path), id, "/json");
    if (lock < 0 || engine_ask(&t->engine, "GET", path, NULL, false, &a) < 0)
        return;
    const json_t *labels = json_object_get(json_object_get(a.json, "Config"), "Labels");
    bool is_kept = str_eq(docker_label(labels, "hermes-keep"), "yes");
    uint64_t term = term_s(t->b.row, is_kept);
    uint64_t lease = 0;
    bool is_ours = a.status == 200 && docker_is_ours(&t->b, labels) &&
                   strlen(docker_label(labels, "hermes-config")) == 64 &&
                   str_parse_u64(docker_label(labels, "hermes-lease"), &lease) == 0;
    /* Stopped ones may be many: they take no place in the list. */
    struct seen *seen = is_ours && (!is_kept || runs(a.json)) ? find(t, id) : NULL;
    if (seen) {
        seen->is_listed = true;
        if (is_quiet(t, a.json) != 1)
            seen->since_ms = clock_ms();
        else if (clock_ms() - seen->since_ms >= term * 1000)
            finish(t, id, is_kept);
    }
    engine_answer_done(&a);
}

static void tidy_row(struct tidy *t)
{
    char path[256];
    struct engine_answer a = {0};
    t->engine =
        (struct engine){.socket = t->b.row->socket, .watch_fd = -1, .within_ms = ASK_MS};
    if (engine_hello(&t->engine, &t->b) != PLACE_FINE)
        return;
    (void)snprintf(path, sizeof(path),
        "/containers/json?all=1&filters=%%7B%%22label%%22:%%5B%%22hermes-owner=%s%%22%%5D%%7D",
        t->b.instance);
    if (engine_ask(&t->engine, "GET", path, NULL, false, &a) == 0 && a.status == 200) {
        for (size_t i = 0; i < json_array_size(a.json); i++) {
            const json_t *item = json_array_get(a.json, i);
            const char *id = json_string_value(json_object_get(item, "Id"));
            if (is_id(id) && docker_is_ours(&t->b, json_object_get(item, "Labels")))
                look(t, id);
        }
    }
    engine_answer_done(&a);
}

static unsigned period_s(const struct place_table *table)
{
    unsigned period = PERIOD_MAX_S;
    for (uint32_t i = 0; i < table->count; i++) {
        unsigned quarter = table->rows[i].idle_s / 4 + 1;
        if (table->rows[i].kind == PLACE_DOCKER && quarter < period)
            period = quarter;
    }
    return period;
}

_Noreturn void docker_tidy(const struct place_table *table, const char *control_dir)
{
    static struct tidy t;
    t.control_dir = control_dir;
    for (;;) {
        for (size_t i = 0; i < SEEN_MAX; i++)
            t.seen[i].is_listed = false;
        for (uint32_t i = 0; i < table->count; i++) {
            t.b.row = &table->rows[i];
            t.b.instance = table->instance;
            if (t.b.row->kind == PLACE_DOCKER)
                tidy_row(&t);
        }
        for (size_t i = 0; i < SEEN_MAX; i++)
            if (!t.seen[i].is_listed)
                t.seen[i].id[0] = '\0';
        (void)sleep(period_s(table));
    }
}
