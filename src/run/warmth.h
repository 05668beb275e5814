/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Whether a box may be one that was started ahead, or why it starts cold. The answer carries
 * the reason as `isolation.start_reason`. Every function returns NULL when a warm start is
 * possible; the spawner then serves the request with a ready box or a zygote, or answers with a
 * cold box when it has neither (WARMTH_NOT_READY). */

#include "run/plan.h"

#define WARMTH_NOT_READY "not_ready"

/* An interpreter that was started ahead has already read its environment, so variables in
 * `asked` (of the request, or NULL) that matter at its start (early_env) need a cold box. So do
 * very long words. */
const char *warmth_words_problem(const struct stage_def *def, const struct strv *argv,
    const struct strv *env, const struct strv *asked);

struct warmth_question {
    const struct stage_def *def;
    const struct run_stage *stage;
    const struct strv *asked; /* variables of the request, or NULL */
    size_t mount_count;
    bool has_image;    /* an image of which nothing is started ahead */
    bool has_template; /* a copy of a template box may serve it (run/template.h), ... */
    bool collects;     /* ... unless it returns files */
    bool has_network;  /* ... or has a network */
    bool is_compared;  /* one of several runs whose times are compared */
};
const char *warmth_problem(const struct warmth_question *q);
