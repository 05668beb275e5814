/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Limits of one box, in one table. Everything that names limits reads it: request bodies
 * (limits_decode()), the options of the command line, the settings of an operator, attack cases
 * of the selftest, /v1/runtimes and /openapi.json. Two names follow from the JSON field `x_mb`:
 * the option is --x, and the setting of its maximum is max_x_mb. (wall_ms is --time, network_mb
 * is
 * --network-bytes.)
 *
 * A new limit needs a member of struct run_limits, a row of limit_table, a setting, and code
 * that enforces it: in the spawner for a row with a member of struct spawn_limits, in
 * hermes-egress for those of the network (proto/network.h), else in run/stage/stage.c. */

#include "base/err.h"
#include "proto/spawn.h"

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

struct run_limits {
    uint64_t wall_ms;
    uint64_t cpu_ms;
    uint64_t memory_mb;
    uint64_t processes;
    uint64_t open_files;
    uint64_t disk_mb;
    uint64_t file_size_mb;
    uint64_t stack_mb;
    uint64_t output_kb; /* of each stream */
    uint64_t cpu_milli; /* "cpus" times 1000 */
    uint64_t network_connections;
    uint64_t network_mb; /* in each direction */
};

/* What a box may take of the budgets that all boxes share (state/admit.h). */
struct box_need {
    uint64_t memory_mb;
    uint64_t processes;
};
struct box_need limits_need(const struct run_limits *limits);

/* For two boxes that exist one after the other (larger), or at the same time (sum). */
struct box_need box_need_larger(struct box_need a, struct box_need b);
struct box_need box_need_sum(struct box_need a, struct box_need b);

/* One row per limit. `scale` converts one unit of the JSON number to the member: 1, or 1000 for
 * cpus, which may have a fraction. */
struct limit_info {
    const char *name; /* JSON field: "wall_ms" ... "cpus" */
    size_t offset;
    uint64_t min;
    uint64_t max;      /* the server's maximum unless configured */
    uint64_t fallback; /* used when neither the request nor the runtime names the limit */
    unsigned scale;
    const char *text;
    /* The member of struct spawn_limits that enforces it, in `spawn_unit` of it for one unit of
     * ours. spawn_size 0: the spawner does not enforce it. */
    size_t spawn_offset;
    size_t spawn_size;
    uint64_t spawn_unit;
};
extern const struct limit_info limit_table[];
extern const size_t limit_count;

uint64_t *limit_member(struct run_limits *limits, const struct limit_info *info);

/* The limits in the spawner's units. */
void limits_to_spawn(const struct run_limits *from, struct spawn_limits *to);

/* The number of files and directories that disk_mb allows. */
uint64_t limits_inodes(uint64_t disk_mb);

/* The compiled-in maxima. */
void limits_maxima(struct run_limits *ret);

/* Fills zero members of limits from defaults (may be NULL), then from the table's fallback. A
 * default adapts to the values that the caller named: cpu_ms is at least a named wall_ms and
 * vice versa, disk_mb at most memory_mb, memory_mb and file_size_mb at least a named disk_mb,
 * stack_mb at most half of memory_mb. */
void limits_fill(struct run_limits *limits, const struct run_limits *defaults);

/* Lowers defaults to the maxima, so that a request that names no limits is never refused
 * because of them. */
void limits_cap(struct run_limits *defaults, const struct run_limits *maxima);

/* Raises each limit to that of `other`, where that is larger. */
void limits_raise(struct run_limits *limits, const struct run_limits *other);

/* Checks every member against [min, max of maxima] and names the field as prefix + name. Also
 * checks that disk_mb does not exceed memory_mb, because the files of a box live in its
 * memory. */
int limits_check(const struct run_limits *limits, const struct run_limits *maxima,
    const char *prefix, struct err *err);

/* Reads a `limits` object by the table. `prefix` comes before field names in messages:
 * "limits." or "compile_limits.". */
int limits_decode(
    const json_t *value, const char *prefix, struct run_limits *ret, struct err *err);
