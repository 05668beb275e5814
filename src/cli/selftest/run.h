/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Runs one attack case: plants canaries, runs the program, judges the outcome. */

#include "cli/selftest/canary.h"
#include "cli/selftest/case.h"
#include "run/engine.h"

/* What all cases share. Read-only while they run. */
struct attack_bench {
    bool warm; /* cases (not controls) must run in a box of a zygote */
    struct engine *engine;
    const struct runtime_registry *runtimes;
    const struct attack_cases *cases;
    const struct canary_home *home;
    char *victim; /* source of the neighbour program, NULL when there is none */
    size_t victim_len;
    int cancel_fd;     /* readable when everything must end */
    unsigned slack_ms; /* how much later than its limit a run may end on this host */
    /* Factor for all time limits: 1, or more on a host that is too slow (emulated) for the
     * cases. */
    unsigned time_scale;
};

enum attack_verdict { ATTACK_PENDING, ATTACK_PASSED, ATTACK_FAILED, ATTACK_SKIPPED };

struct attack_outcome {
    enum attack_verdict verdict;
    bool ran;
    bool cancelled;
    enum run_status status;
    unsigned limits_hit;
    struct run_usage usage;
    char why[400]; /* one printable line; "" when the case passed */
};

/* Measures the host with a run that does nothing. It also proves that boxes work. */
int attack_calibrate(struct attack_bench *bench, struct err *err);

/* Runs the case or its control: the same probe with CONTROL=1, in a box without the barriers
 * that the case names. */
void attack_run(const struct attack_bench *bench, const struct attack_case *c, bool control,
    struct attack_outcome *ret);
