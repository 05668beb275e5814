/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Counters of a server, for GET /metrics. Any thread may count; reading does not stop the
 * others. */

#include "base/buf.h"
#include "lang/runtime.h"
#include "run/run.h"

#include <stdatomic.h>

/* Most languages that are counted, buckets of the latency histogram, classes of HTTP
 * statuses. */
enum { METRICS_LANGUAGES = 128, METRICS_BUCKETS = 12, METRICS_CLASSES = 6 };

struct metrics {
    atomic_ulong runs[METRICS_LANGUAGES][RUN_STATUS_COUNT];
    atomic_ulong execs[RUN_STATUS_COUNT];      /* in sessions */
    atomic_ulong latency[METRICS_BUCKETS + 1]; /* time of a run from admission to answer */
    atomic_ulong latency_sum_us;
    atomic_ulong queue_sum_us;
    atomic_ulong setup_sum_us;
    atomic_ulong compiled; /* compile stages, and how many of them the cache served */
    atomic_ulong cached;
    atomic_ulong parsed; /* shell texts for host_exec: by a box, by a tree that was kept */
    atomic_ulong parse_hits;
    atomic_ulong requests[METRICS_CLASSES]; /* HTTP answers by first digit of the status */
    atomic_ulong refused;                   /* 429 */
    atomic_ulong gated;                     /* requests that the HTTP gate refused */
    atomic_ulong late;                      /* connections closed by the watchdog */
    atomic_ulong connections;               /* open now */
    atomic_ulong spawner_restarts;
    atomic_ulong evicted; /* sessions */
};

void metrics_count_run(struct metrics *m, const struct runtime_registry *runtimes,
    const struct runtime *runtime, const struct run_result *result, double total_ms);
void metrics_count_request(struct metrics *m, int status);

/* Writes the counters as text for Prometheus. */
int metrics_write(struct metrics *m, const struct runtime_registry *runtimes, struct buf *to);
