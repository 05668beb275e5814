/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The attack cases that are shipped with Hermes. Each is a hostile program in one file, with a
 * header of comment lines `key: value` that states the expected outcome (selftest/README.md).
 */

#include "base/err.h"
#include "lang/limits.h"
#include "run/run.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum control_kind { CONTROL_BREACH, CONTROL_STATUS, CONTROL_HIT };

struct attack_case {
    char *id;
    char *name;
    char *group;
    unsigned priority;
    char *file; /* file name in the directory of cases */
    char *text;
    size_t text_len;
    const char *language;

    uint32_t statuses; /* expected statuses, a bit for each enum run_status */
    char *signal;      /* expected signal, or NULL */
    int exit_code;     /* expected exit code of a runtime_error, or -1 */
    unsigned hits;     /* limits that must be hit */
    unsigned not_hits;
    struct run_limits limits;
    struct run_limits compile_limits;
    unsigned runs;
    bool victim;
    char *differ; /* the lines `differ: ...` of both boxes must differ; or NULL */
    struct strv collect;
    struct strv expect_files; /* "name error" */
    struct strv files;        /* files put beside the program */

    bool root_only;
    char *rootless; /* why it is skipped without root, or NULL */
    bool needs_cgroup;

    bool has_control;
    uint32_t remove; /* enum spawn_barrier bits */
    bool host_root;  /* the control runs without the barrier `mount` */
    char *barriers;  /* as written in the header */
    enum control_kind control_kind;
    unsigned control_value; /* a status or a bit of limits_hit */
};

struct attack_cases {
    char *dir;
    struct attack_case *items; /* sorted by id */
    size_t count;
};

/* Finds the directory of cases: `named`, or, when that is NULL or "", one beside the program or
 * the installed one. Returns NULL when there is none. The caller frees it. */
char *attack_cases_dir(const char *named);

/* Reads every case in dir. An unknown key, a bad value or a missing key is an error that names
 * the file. */
int attack_cases_load(struct attack_cases *ret, const char *dir, struct err *err);
void attack_cases_done(struct attack_cases *cases);
