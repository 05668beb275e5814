/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Runs one box, from request to verdict. */

#include "run/engine.h"
#include "run/package.h"
#include "run/run.h"
#include "run/template.h"

struct stage_spec {
    struct package_spec package;
    unsigned root;
    unsigned exec;
    const char *exec_path;
    const char *cold_reason; /* of run/warmth.h; NULL: a zygote or a pool may serve it */
    const struct template_keeper *templates; /* may give a copy for this stage; NULL: no
                                              * templates */
    struct template_use template_use;        /* for it, without descriptors */
    uint32_t owner;                          /* as in run_spec */
    bool is_root;                            /* BOX_ROOT */
    struct run_limits limits;
    const struct run_mount *mounts;
    size_t mount_count;
    const struct network_policy *network; /* NULL: none */
    const struct network_asker *asker;    /* or NULL */
    struct network_hub *hub;              /* of its channel */
    const char *stdin_data;               /* whole stdin, or NULL */
    size_t stdin_size;
    int stdin_fd;      /* >= 0: copied into the box as it comes */
    int package_fd;    /* the package, written before by package_write(); borrowed; -1: write it
                          now */
    int box_stdin_fd;  /* ends of pipes that the box gets; taken; -1: make them. The */
    int box_stdout_fd; /* output limit does not apply to these pipes */
    uint64_t stdout_max; /* bytes; the result keeps as many as fit. 0: output_kb, and all are
                            kept */
    const struct run_watch *watch;
};

/* Runs the box. `result` gets verdict, output and usage; `collected` gets the files (may be
 * NULL when the package has no globs). Returns negative errno with err only when Hermes itself
 * failed. */
int stage_run(struct spawner_client *spawner, const struct stage_spec *spec,
    struct stage_result *result, struct collect_reader *collected, struct err *err);
