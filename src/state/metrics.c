/* SPDX-License-Identifier: Apache-2.0 */

/* See metrics.h. The route of /metrics adds the gauges of other modules (queue, memory,
 * history). */

#include "state/metrics.h"

/* Upper bounds of the latency histogram, in milliseconds. */

static const double bounds_ms[METRICS_BUCKETS] = {
    1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1000, 5000, 30000};

void metrics_count_run(struct metrics *m, const struct runtime_registry *runtimes,
    const struct runtime *runtime, const struct run_result *result, double total_ms)
{
    size_t language = (size_t)(runtime - runtimes->items);
    size_t bucket = 0;
    if (language < METRICS_LANGUAGES)
        m->runs[language][result->run.status]++;
    while (bucket < METRICS_BUCKETS && total_ms > bounds_ms[bucket])
        bucket++;
    m->latency[bucket]++;
    m->latency_sum_us += (unsigned long)(total_ms * 1000);
    m->queue_sum_us += (unsigned long)(result->run.usage.queue_ms * 1000);
    m->setup_sum_us += (unsigned long)(result->run.usage.setup_ms * 1000);
    m->compiled += result->has_compile;
    m->cached += result->has_compile && result->compile_cached;
}

void metrics_count_request(struct metrics *m, int status)
{
    int class = status / 100;
    if (class > 0 && class < METRICS_CLASSES)
        m->requests[class]++;
    m->refused += status == 429;
}

static int write_execs(struct metrics *m, struct buf *to)
{
    int r = buf_append_str(to, "# HELP hermes_execs_total Finished execs of sessions.\n"
                               "# TYPE hermes_execs_total counter\n");
    for (unsigned s = RUN_OK; r == 0 && s < RUN_STATUS_COUNT; s++) {
        if (m->execs[s])
            r = buf_printf(to, "hermes_execs_total{status=\"%s\"} %lu\n",
                run_status_name((enum run_status)s), (unsigned long)m->execs[s]);
    }
    return r;
}

static int write_runs(
    struct metrics *m, const struct runtime_registry *runtimes, struct buf *to)
{
    int r = buf_append_str(to, "# HELP hermes_runs_total Finished runs.\n"
                               "# TYPE hermes_runs_total counter\n");
    for (size_t i = 0; i < runtimes->count && i < METRICS_LANGUAGES; i++) {
        for (unsigned s = RUN_OK; r == 0 && s < RUN_STATUS_COUNT; s++) {
            unsigned long n = m->runs[i][s];
            if (n)
                r = buf_printf(to, "hermes_runs_total{language=\"%s\",status=\"%s\"} %lu\n",
                    runtimes->items[i].name, run_status_name((enum run_status)s), n);
        }
    }
    return r;
}

static int write_latency(struct metrics *m, struct buf *to)
{
    unsigned long sum = 0;
    int r = buf_append_str(to, "# HELP hermes_run_seconds From admission to answer.\n"
                               "# TYPE hermes_run_seconds histogram\n");
    for (size_t i = 0; r == 0 && i < METRICS_BUCKETS; i++) {
        sum += m->latency[i];
        r = buf_printf(
            to, "hermes_run_seconds_bucket{le=\"%g\"} %lu\n", bounds_ms[i] / 1000, sum);
    }
    sum += m->latency[METRICS_BUCKETS];
    if (r == 0)
        r = buf_printf(to,
            "hermes_run_seconds_bucket{le=\"+Inf\"} %lu\nhermes_run_seconds_sum %.6f\n"
            "hermes_run_seconds_count %lu\n",
            sum, (double)m->latency_sum_us / 1e6, sum);
    return r;
}

int metrics_write(struct metrics *m, const struct runtime_registry *runtimes, struct buf *to)
{
    const struct {
        const char *name;
        const char *kind;
        const char *help;
        double value;
    } rows[] = {
        {"hermes_queue_seconds_total", "counter", "Time runs spent waiting.",
            (double)m->queue_sum_us / 1e6},
        {"hermes_setup_seconds_total", "counter", "Time spent on setting boxes up.",
            (double)m->setup_sum_us / 1e6},
        {"hermes_compiles_total", "counter", "Compile stages.", (double)m->compiled},
        {"hermes_compile_cache_hits_total", "counter", "Compile stages the cache answered.",
            (double)m->cached},
        {"hermes_shell_parses_total", "counter", "Shell texts that a box parsed.",
            (double)m->parsed},
        {"hermes_shell_parse_cache_hits_total", "counter",
            "Shell texts whose tree was kept from an earlier parse.", (double)m->parse_hits},
        {"hermes_http_refused_total", "counter", "Answers with status 429.",
            (double)m->refused},
        {"hermes_http_gated_total", "counter", "Malformed requests.", (double)m->gated},
        {"hermes_http_late_total", "counter", "Connections closed for being late.",
            (double)m->late},
        {"hermes_http_connections", "gauge", "Open connections.", (double)m->connections},
        {"hermes_sessions_evicted_total", "counter",
            "Idle sessions that were ended because another key needed the room.",
            (double)m->evicted},
        {"hermes_spawner_restarts_total", "counter", "Spawners that had to be replaced.",
            (double)m->spawner_restarts},
    };
    int r = write_runs(m, runtimes, to);
    if (r == 0)
        r = write_execs(m, to);
    if (r == 0)
        r = write_latency(m, to);
    for (size_t i = 0; r == 0 && i < sizeof(rows) / sizeof(rows[0]); i++)
        r = buf_printf(to, "# HELP %s %s\n# TYPE %s %s\n%s %.15g\n", rows[i].name, rows[i].help,
            rows[i].name, rows[i].kind, rows[i].name, rows[i].value);
    if (r == 0)
        r = buf_append_str(to, "# HELP hermes_http_requests_total Answers by class of status.\n"
                               "# TYPE hermes_http_requests_total counter\n");
    for (size_t i = 1; r == 0 && i < METRICS_CLASSES; i++)
        r = buf_printf(to, "hermes_http_requests_total{class=\"%zuxx\"} %lu\n", i,
            (unsigned long)m->requests[i]);
    return r;
}
