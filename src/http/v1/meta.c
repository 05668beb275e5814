/* SPDX-License-Identifier: Apache-2.0 */

/* Routes about the service itself: health, version, metrics, languages, isolation. */

#include "base/alloc.h"
#include "base/clock.h"
#include "base/os/fs.h"
#include "http/http.h"
#include "http/routes.h"
#include "network/entry.h"
#include "network/hub.h"
#include "run/encode.h"
#include "session/session.h"
#include "session/terminal.h"
#include "version.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { METRICS_MAX = 4 << 20 }; /* bytes of the text */

int handle_root(struct http_request *req, struct http_reply *reply, struct err *err)
{
    reply_text(reply, 200, "text/plain; charset=utf-8", "UP!");
    return 0;
}

/* Hermes does not need Docker. Clients of the code runner read whether it is there. */
static bool has_docker(const struct state *state)
{
    return session_backend_is_there(state, place_kind_name(PLACE_DOCKER));
}

int handle_health(struct http_request *req, struct http_reply *reply, struct err *err)
{
    const struct spawn_reply *report = engine_report(req->state->engine);
    bool alive = engine_is_alive(req->state->engine);
    const char *status = req->state->stopping ? "stopping" : alive ? "ok" : "degraded";
    char text[256];
    int len = snprintf(text, sizeof(text),
        "{\"status\":\"%s\",\"docker_connected\":%s,\"auth_enabled\":%s,\"isolation\":"
        "{\"level\":\"%s\",\"cgroup\":\"%s\"},\"version\":\"%s\"}",
        status, has_docker(req->state) ? "true" : "false",
        req->state->keys.count ? "true" : "false", spawner_level_name(report->level),
        spawner_cgroup_name(report->cgroup), HERMES_VERSION);
    reply_json(reply, 200, xstrdup(text), (size_t)len);
    return 0;
}

int handle_version(struct http_request *req, struct http_reply *reply, struct err *err)
{
    char *text = xasprintf("{\"name\":\"hermes\",\"version\":\"%s\"}", HERMES_VERSION);
    reply_json(reply, 200, text, strlen(text));
    return 0;
}

static json_t *list_json(const struct strv *v)
{
    json_t *list = json_array();
    for (size_t i = 0; i < v->count; i++)
        (void)json_array_append_new(list, json_string(v->items[i]));
    return list;
}

static json_t *limits_json(const struct run_limits *defaults)
{
    struct run_limits filled = *defaults;
    json_t *object = json_object();
    limits_fill(&filled, NULL);
    for (size_t i = 0; i < limit_count; i++) {
        const struct limit_info *info = &limit_table[i];
        uint64_t value = *limit_member(&filled, info);
        (void)json_object_set_new(object, info->name,
            info->scale == 1 ? json_integer((json_int_t)value)
                             : json_real((double)value / info->scale));
    }
    return object;
}

int handle_runtimes(struct http_request *req, struct http_reply *reply, struct err *err)
{
    const struct state *s = req->state;
    json_t *list = json_array();
    for (size_t i = 0; i < s->runtimes.count; i++) {
        const struct runtime *rt = &s->runtimes.items[i];
        if (rt->is_internal)
            continue;
        (void)json_array_append_new(list,
            json_pack("{s:s, s:o, s:o, s:s, s:s?, s:s?, s:b, s:b, s:b, s:b, s:s?, s:o, s:o}",
                "name", rt->name, "aliases", list_json(&rt->aliases), "extensions",
                list_json(&rt->extensions), "main_file", rt->main_file, "version", rt->version,
                "compiler", rt->compiler, "compiled", rt->compiled, "sessions",
                rt->run.session.count > 0, "images", rt->run.has_images, "available",
                rt->available, "missing", rt->available ? NULL : rt->missing, "limits",
                limits_json(&rt->limits), "compile_limits",
                rt->compiled ? limits_json(&rt->compile_limits) : json_null()));
    }
    json_t *answer =
        json_pack("{s:o, s:o}", "runtimes", list, "maxima", limits_json(&s->config.maxima));
    char *text = json_dumps(answer, JSON_COMPACT | RESULT_JSON_FLAGS);
    json_decref(answer);
    reply_json(reply, 200, text, strlen(text));
    return 0;
}

int handle_report(struct http_request *req, struct http_reply *reply, struct err *err)
{
    struct admit_state admitted;
    json_t *report = result_report_json(engine_report(req->state->engine));
    admit_get_state(req->state->admit, &admitted);
    (void)json_object_set_new(report, "capacity",
        json_pack("{s:i, s:i, s:I}", "concurrency", (int)admitted.concurrency, "queue",
            (int)admitted.queue, "memory_mb", (json_int_t)admitted.memory_mb));
    (void)json_object_set_new(json_object_get(report, "network"), "max",
        json_string(network_mode_name((unsigned)req->state->config.network_max)));
    char *text = json_dumps(report, JSON_COMPACT);
    json_decref(report);
    reply_json(reply, 200, text, strlen(text));
    return 0;
}

static double resident_bytes(void)
{
    char text[128];
    if (fs_read_small(AT_FDCWD, "/proc/self/statm", text, sizeof(text)) <= 0)
        return 0;
    char *rest;
    (void)strtoul(text, &rest, 10); /* the whole address space */
    return (double)strtoul(rest, NULL, 10) * (double)sysconf(_SC_PAGESIZE);
}

/* The attempts of boxes to reach something. A reason without an attempt is left out. */
static int write_network(struct engine *engine, struct buf *out)
{
    struct network_totals totals;
    engine_network_totals(engine, &totals);
    /* Both reasons have the name "reserved". */
    totals.denied[ADDRESS_RESERVED] += totals.denied[ADDRESS_PROTOCOL];
    totals.denied[ADDRESS_PROTOCOL] = 0;
    int r = buf_printf(out,
        "# HELP hermes_network_connections_total Connections of boxes that were allowed.\n"
        "# TYPE hermes_network_connections_total counter\n"
        "hermes_network_connections_total %llu\n"
        "# HELP hermes_network_bytes_total Bytes of those connections.\n"
        "# TYPE hermes_network_bytes_total counter\n"
        "hermes_network_bytes_total{direction=\"sent\"} %llu\n"
        "hermes_network_bytes_total{direction=\"received\"} %llu\n"
        "# HELP hermes_network_denied_total Attempts of boxes that were denied.\n"
        "# TYPE hermes_network_denied_total counter\n",
        (unsigned long long)totals.allowed, (unsigned long long)totals.sent,
        (unsigned long long)totals.received);
    for (unsigned i = 0; r == 0 && i < REASON_END; i++) {
        if (totals.denied[i])
            r = buf_printf(out, "hermes_network_denied_total{reason=\"%s\"} %llu\n",
                network_reason_name(i), (unsigned long long)totals.denied[i]);
    }
    return r;
}

int handle_metrics(struct http_request *req, struct http_reply *reply, struct err *err)
{
    struct state *s = req->state;
    struct buf out;
    struct admit_state a;
    size_t runs, pending, listeners;
    uint64_t bytes;
    admit_get_state(s->admit, &a);
    approvals_count(s->approvals, &pending, &listeners);
    history_get_size(s->history, &runs, &bytes);
    const struct {
        const char *name;
        const char *help;
        double value;
    } gauges[] = {
        {"hermes_boxes_running", "Runs, and execs of sessions, that have a place.", a.running},
        {"hermes_queue_waiting", "Runs and execs that wait for a place.", a.waiting},
        {"hermes_concurrency", "Places.", a.concurrency},
        {"hermes_queue_size", "Runs that may wait.", a.queue},
        {"hermes_memory_promised_bytes", "Memory limits of running boxes together.",
            (double)a.memory_promised_mb * 1048576},
        {"hermes_memory_bytes", "Memory that may be promised.", (double)a.memory_mb * 1048576},
        {"hermes_processes_promised", "Process limits of boxes together.",
            (double)a.processes_promised},
        {"hermes_processes_promisable", "Process limits that may be promised.",
            (double)a.processes},
        {"hermes_sessions", "Sessions that have a box.", sessions_count(s->sessions)},
        {"hermes_terminals", "Terminals of sessions.", terminals_count(s->sessions)},
        {"hermes_approvals_pending", "Effects that wait for an approval.", (double)pending},
        {"hermes_approval_listeners", "Clients that listen to approvals.", (double)listeners},
        {"hermes_history_runs", "Runs kept in memory.", (double)runs},
        {"hermes_history_bytes", "Their size.", (double)bytes},
        {"hermes_held_bytes", "Requests and replies under way.", (double)ledger_sum(s->ledger)},
        {"hermes_background_runs", "Async and streamed runs under way.", s->background},
        {"hermes_uptime_seconds", "Seconds since the server started.",
            (double)(clock_ms() - s->started_ms) / 1000},
        {"hermes_resident_bytes", "Memory of the server.", resident_bytes()},
        {"hermes_spawner_up", "Whether boxes can be started.", engine_is_alive(s->engine)},
        {"hermes_isolation_level", "3 full, 2 strong, 1 process.",
            engine_report(s->engine)->level},
    };
    buf_init(&out, METRICS_MAX);
    int r = metrics_write(&s->metrics, &s->runtimes, &out);
    if (r == 0)
        r = write_network(s->engine, &out);
    for (size_t i = 0; r == 0 && i < sizeof(gauges) / sizeof(gauges[0]); i++)
        r = buf_printf(&out, "# HELP %s %s\n# TYPE %s gauge\n%s %.15g\n", gauges[i].name,
            gauges[i].help, gauges[i].name, gauges[i].name, gauges[i].value);
    size_t len;
    char *text = buf_take(&out, &len);
    reply_json(reply, 200, text, len);
    reply->content_type = "text/plain; version=0.0.4; charset=utf-8";
    return 0;
}
