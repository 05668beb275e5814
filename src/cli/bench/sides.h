/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What hermes bench compares: one program, started in several ways. */

#include "run/engine.h"

#include <stdbool.h>
#include <stddef.h>

enum { SIDE_BARE, SIDE_WARM, SIDE_COLD, SIDE_BWRAP, SIDE_NSJAIL, SIDE_COUNT };
const char *bench_side_name(unsigned side);

/* Hello in a language, as a file and for the interpreter's command line. */
struct subject {
    const char *language;
    const char *code;
    const char *bare[4];
};

enum { BENCH_SUBJECTS = 6 };

struct bench {
    struct runtime_registry runtimes;
    struct engine *engine;
    const struct subject *subjects[BENCH_SUBJECTS];
    bool is_warm[BENCH_SUBJECTS]; /* warm boxes of the subject came up */
    size_t count;
};

/* The subjects of these languages, or of those that are installed when none is named; waits
 * until warm boxes are up. */
int bench_open(struct bench *b, const struct strv *languages, struct err *err);
void bench_close(struct bench *b);

bool bench_has_side(const struct bench *b, const struct subject *subject, unsigned side);

/* Once, to its end; it must say hello. Any thread. */
int bench_run(const struct bench *b, const struct subject *subject, unsigned side,
    double *ret_ms, struct err *err);
