/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* One box from request to verdict. */

#include "run/engine.h"
#include "run/package.h"
#include "run/run.h"

struct stage_spec {
    struct job_spec job;
    unsigned root;
    unsigned exec;
    const char *exec_path;
    bool may_be_warm; /* a zygote of the root may serve it */
    uint32_t owner;   /* of run_spec */
    struct run_limits limits;
    const struct run_mount *mounts;
    size_t mount_count;
    const char *stdin_data; /* whole stdin, or NULL */
    size_t stdin_size;
    int stdin_fd;      /* pumped when >= 0 */
    int job_fd;        /* what job_write() made of `job` before, borrowed; -1: it is done now */
    int box_stdin_fd;  /* ends of pipes that become the box's own, taken; -1 for ours. The */
    int box_stdout_fd; /* output limit does not see what goes through them */
    uint64_t stdout_max; /* 0: output_kb, and all is kept; else only what fits into result */
    const struct run_watch *watch;
};

/* Runs it. `result` gets verdict, output and usage; `collected` (may be NULL when the job has
 * no globs) the files. Negative errno and err only when Hermes itself failed. */
int stage_run(struct spawner_client *spawner, const struct stage_spec *spec,
    struct stage_result *result, struct collect_reader *collected, struct err *err);

/* The same limits in the spawner's units. */
void stage_spawn_limits(const struct run_limits *from, struct spawn_limits *to);
