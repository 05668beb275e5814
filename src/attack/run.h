/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Runs one attack case: plants canaries, runs the program, judges the outcome. */

#include "attack/canary.h"
#include "attack/case.h"
#include "run/engine.h"

#include <jansson.h>

/* The data that all cases share. Read-only while they run. */
struct attack_bench {
    bool warm; /* cases (not controls) must run in a box of a zygote */
    struct engine *engine;
    const struct runtime_registry *runtimes;
    const struct attack_cases *cases;
    const struct canary_home *home; /* NULL: canaries cannot be planted here */
    /* Runs a program to its end. NULL: the engine does. */
    int (*run)(const struct attack_bench *bench, struct run_spec *spec,
        const struct run_watch *watch, struct run_result *result, struct err *err);
    void *context; /* for `run` */
    char *victim;  /* source of the neighbour program, NULL when there is none */
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
    enum err_code refusal; /* why Hermes did not run the case; ERR_NONE when it did */
    char why[400];         /* one printable line; "" when the case passed */
};

/* Reads the neighbour program, which lies beside the directory of cases. */
void attack_load_victim(struct attack_bench *bench);

/* Runs a program as the bench says. */
int attack_execute(const struct attack_bench *bench, struct run_spec *spec,
    const struct run_watch *watch, struct run_result *result, struct err *err);

/* encode.c: the case and its outcome as JSON. The caller owns it. */
json_t *attack_json(
    const struct attack_case *c, bool control, const struct attack_outcome *outcome);

/* Measures the host with a run that does nothing. It also proves that boxes work. */
int attack_calibrate(struct attack_bench *bench, struct err *err);

/* Runs the case or its control: the same probe with CONTROL=1, in a box without the barriers
 * that the case names. */
void attack_run(const struct attack_bench *bench, const struct attack_case *c, bool control,
    struct attack_outcome *ret);
