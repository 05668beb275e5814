/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What hermes bench compares: one program, started in several ways (sides). */

#include "run/engine.h"

#include <stdbool.h>
#include <stddef.h>

enum { SIDE_BARE, SIDE_WARM, SIDE_COLD, SIDE_BWRAP, SIDE_NSJAIL, SIDE_COUNT };
const char *bench_side_name(unsigned side);

/* A hello program in one language, as a file and as a command line of the interpreter. */
struct subject {
    const char *language;
    const char *code;
    const char *bare[4];
};

enum { BENCH_SUBJECTS = 6 };

struct bench {
    struct lang_dirs dirs; /* the caller sets it, and spawner_path */
    const char *spawner_path;
    struct runtime_registry runtimes;
    struct engine *engine;
    const struct subject *subjects[BENCH_SUBJECTS];
    bool is_warm[BENCH_SUBJECTS]; /* warm boxes for this subject are running */
    size_t count;
};

/* Opens the subjects of these languages, or of all installed ones when none is named. Waits
 * until warm boxes are running. */
int bench_open(struct bench *b, const struct strv *languages, struct err *err);
void bench_close(struct bench *b);

bool bench_has_side(const struct bench *b, const struct subject *subject, unsigned side);

/* Runs the subject once, to its end. It must print hello. Any thread may call this. */
int bench_run(const struct bench *b, const struct subject *subject, unsigned side,
    double *ret_ms, struct err *err);
