/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* One attack case from canaries to judgement. */

#include "cli/selftest/canary.h"
#include "cli/selftest/case.h"
#include "run/engine.h"

/* What all cases share; read-only while they run. */
struct attack_bench {
    bool warm; /* a case that is no control must run in a box of a zygote */
    struct engine *engine;
    const struct runtime_registry *runtimes;
    const struct attack_cases *cases;
    const struct canary_home *home;
    char *victim; /* source of the neighbour, NULL when there is none */
    size_t victim_len;
    int cancel_fd;       /* readable: everything shall end */
    unsigned slack_ms;   /* how much later than its limit a run may end on this host */
    unsigned time_scale; /* limits of time are this many times those of the case: 1, or more on
                            a host so slow (emulated) that a case would not get to its point */
};

enum attack_verdict { ATTACK_PENDING, ATTACK_PASSED, ATTACK_FAILED, ATTACK_SKIPPED };

struct attack_outcome {
    enum attack_verdict verdict;
    bool ran;
    bool cancelled;
    enum run_status status;
    unsigned limits_hit;
    struct run_usage usage;
    char why[400]; /* one line of printable text; "" when it passed */
};

/* Measures the host with a run that does nothing; also proves that boxes work at all. */
int attack_calibrate(struct attack_bench *bench, struct err *err);

/* Runs the case, or its control: the same probe with CONTROL=1 in a box that lacks the barriers
 * which the case names. */
void attack_run(const struct attack_bench *bench, const struct attack_case *c, bool control,
    struct attack_outcome *ret);
