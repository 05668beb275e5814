/* SPDX-License-Identifier: Apache-2.0 */

/* See place.h. */

#include "proto/place.h"

#include <stddef.h>
#include <string.h>

#define BIT(limit) (1u << (limit))

enum {
    LIMITS_OF_DOCKER = BIT(PLACE_CPUS) | BIT(PLACE_MEMORY) | BIT(PLACE_PROCESSES),
    EVERY_LIMIT = BIT(PLACE_LIMITS) - 1,
};

static const struct {
    const char *name;
    const char *isolation;
    const char *open; /* the isolation of a row with is_open */
    bool is_box;
    uint32_t enforces, may_enforce;
} kinds[PLACE_KINDS] = {
    [PLACE_NATIVE] = {"native", "box", "box", true, EVERY_LIMIT, EVERY_LIMIT},
    [PLACE_LOCAL] = {"local", "none", "none", false, 0, 0},
    [PLACE_SSH] = {"ssh", "none", "none", false, 0, 0},
    [PLACE_PLUGIN] = {"plugin", "declared", "none", true, 0, EVERY_LIMIT},
    [PLACE_APPTAINER] = {"apptainer", "container", "partial", true, 0, LIMITS_OF_DOCKER},
    [PLACE_DOCKER] = {"docker", "container", "partial", true, LIMITS_OF_DOCKER, EVERY_LIMIT},
};

static const struct {
    const char *name;
    uint32_t fallback; /* the default, for places that can enforce the limit */
} limits[PLACE_LIMITS] = {
    [PLACE_CPUS] = {"cpus", 1000},
    [PLACE_MEMORY] = {"memory_mb", 5120},
    [PLACE_PROCESSES] = {"processes", 256},
    [PLACE_DISK] = {"disk_mb", 51200},
};

static const char *const errors[PLACE_ERRORS] = {
    [PLACE_FINE] = "fine",
    [PLACE_AUTH] = "auth",
    [PLACE_NOT_FOUND] = "not_found",
    [PLACE_REFUSED] = "refused",
    [PLACE_LIMIT] = "limit",
    [PLACE_UNREACHABLE] = "unreachable",
    [PLACE_LOST] = "lost",
};

const char *place_kind_name(uint32_t kind)
{
    return kind < PLACE_KINDS ? kinds[kind].name : NULL;
}

const char *place_error_name(uint32_t error)
{
    return error < PLACE_ERRORS ? errors[error] : "lost";
}

const char *place_limit_name(uint32_t limit)
{
    return limit < PLACE_LIMITS ? limits[limit].name : NULL;
}

bool place_has_probe(uint32_t kind)
{
    return kind == PLACE_DOCKER;
}

uint32_t place_enforces(uint32_t kind)
{
    return kind < PLACE_KINDS ? kinds[kind].enforces : 0;
}

uint32_t place_may_enforce(uint32_t kind)
{
    return kind < PLACE_KINDS ? kinds[kind].may_enforce : 0;
}

uint32_t place_default_limit(uint32_t kind, uint32_t limit)
{
    bool has_one = limit < PLACE_LIMITS && (place_may_enforce(kind) & BIT(limit));
    return has_one ? limits[limit].fallback : 0;
}

const char *place_network(const struct place_row *row)
{
    bool is_cut = strcmp(row->network, "none") == 0;
    return is_cut ? "none" : "full";
}

bool place_is_box(const struct place_row *row)
{
    return !row || (row->kind < PLACE_KINDS && kinds[row->kind].is_box && !row->is_open);
}

uint64_t place_open_ms(const struct place_row *row)
{
    return (uint64_t)row->open_s * 1000;
}

const char *place_isolation(const struct place_row *row)
{
    if (row->kind >= PLACE_KINDS)
        return "none";
    return row->is_open ? kinds[row->kind].open : kinds[row->kind].isolation;
}

bool place_table_may_gain(const struct place_table *table)
{
    bool may = false;
    for (uint32_t i = 0; i < table->count; i++)
        may = may || (table->rows[i].kind == PLACE_LOCAL && table->rows[i].may_gain);
    return may;
}
