/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The attack cases that are shipped with Hermes: one hostile program per file, with a header of
 * comment lines `key: value` that says what must become of it (selftest/README.md). */

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
    char *file; /* name in the directory of cases */
    char *text;
    size_t text_len;
    const char *language;

    uint32_t statuses; /* bit per enum run_status that is right */
    char *signal;      /* of a run that is signaled, or NULL */
    int exit_code;     /* of a run that is a runtime_error, or -1 */
    unsigned hits;     /* limits that must be hit */
    unsigned not_hits;
    struct run_limits limits;
    struct run_limits compile_limits;
    unsigned runs;
    bool victim;
    char *differ; /* lines `differ: ...` of both boxes must differ, or NULL */
    struct strv collect;
    struct strv expect_files; /* "name error" */
    struct strv files;        /* put beside the program */

    bool root_only;
    char *rootless; /* why it is skipped without root, or NULL */
    bool needs_cgroup;

    bool has_control;
    uint32_t remove; /* enum spawn_barrier bits */
    bool host_root;  /* the barrier `mount` */
    char *barriers;  /* as the header names them */
    enum control_kind control_kind;
    unsigned control_value; /* status or bit of limits_hit */
};

struct attack_cases {
    char *dir;
    struct attack_case *items; /* sorted by id */
    size_t count;
};

/* `named` (may be NULL), $HERMES_CASES, beside the program, then the installed place. The
 * caller frees; NULL when there is none. */
char *attack_cases_dir(const char *named);

/* Reads every case of dir. An unknown key, a bad value or a key that is missing is an error
 * which names the file. */
int attack_cases_load(struct attack_cases *ret, const char *dir, struct err *err);
void attack_cases_done(struct attack_cases *cases);
