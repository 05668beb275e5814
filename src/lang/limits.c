/* SPDX-License-Identifier: Apache-2.0 */

/* The table of limits and its uses: reading limits, filling in those that a request left out,
 * checking those it named, and telling them to the spawner. */

#include "lang/limits.h"

#include "base/str.h"
#include "json/body.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define ROW(field, member, lo, hi, dflt, unit, says, ...)                                      \
    {                                                                                          \
        .name = (field), .offset = offsetof(struct run_limits, member), .min = (lo),           \
        .max = (hi), .fallback = (dflt), .scale = (unit), .text = (says), __VA_ARGS__          \
    }
#define SPAWN(member, unit)                                                                    \
    .spawn_offset = offsetof(struct spawn_limits, member),                                     \
    .spawn_size = sizeof(((struct spawn_limits *)0)->member), .spawn_unit = (unit)

enum { MB = 1 << 20, INODES_PER_MB = 128 };

/* MiB. Also the largest memory that fit_defaults() grants for a named disk_mb. */
enum { MEMORY_MAX_MB = 16384 };

const struct limit_info limit_table[] = {
    ROW("wall_ms", wall_ms, 1, 600000, 10000, 1, "real time, in milliseconds"),
    ROW("cpu_ms", cpu_ms, 1, 600000, 10000, 1, "CPU time of all processes, in milliseconds"),
    ROW("memory_mb", memory_mb, 4, MEMORY_MAX_MB, 256, 1,
        "memory of the box, its files included, in MiB", SPAWN(memory_bytes, MB)),
    ROW("processes", processes, 1, 4096, 64, 1, "processes and threads at one time",
        SPAWN(processes, 1)),
    ROW("open_files", open_files, 8, 16384, 256, 1, "open descriptors of one process",
        SPAWN(open_files, 1)),
    ROW("disk_mb", disk_mb, 1, 16384, 64, 1, "size of /box, of /tmp and of /dev/shm, in MiB",
        SPAWN(disk_bytes, MB)),
    ROW("file_size_mb", file_size_mb, 1, 16384, 64, 1, "size of one file, in MiB",
        SPAWN(file_bytes, MB)),
    ROW("stack_mb", stack_mb, 1, 4096, 64, 1, "stack of the main thread, in MiB",
        SPAWN(stack_bytes, MB)),
    ROW("output_kb", output_kb, 1, 65536, 1024, 1,
        "bytes kept of stdout and of stderr, in KiB"),
    ROW("cpus", cpu_milli, 50, 64000, 1000, 1000, "cores the box may use, fractions allowed",
        SPAWN(cpu_milli, 1)),
    ROW("network_connections", network_connections, 1, 1024, 64, 1,
        "connections to hosts outside at one time"),
    ROW("network_mb", network_mb, 1, 65536, 1024, 1,
        "bytes sent to hosts outside, and bytes received, in MiB"),
};
const size_t limit_count = sizeof(limit_table) / sizeof(limit_table[0]);

uint64_t *limit_member(struct run_limits *limits, const struct limit_info *info)
{
    return (uint64_t *)((char *)limits + info->offset);
}

static uint64_t member_value(const struct run_limits *limits, const struct limit_info *info)
{
    return *(const uint64_t *)((const char *)limits + info->offset);
}

uint64_t limits_inodes(uint64_t disk_mb)
{
    return disk_mb * INODES_PER_MB;
}

void limits_to_spawn(const struct run_limits *from, struct spawn_limits *to)
{
    *to = (struct spawn_limits){.inodes = (uint32_t)limits_inodes(from->disk_mb),
        /* A second line of defence: run/stage/stage.c ends the box earlier. */
        .cpu_s = (uint32_t)((from->cpu_ms + 999) / 1000 + 1)};
    for (size_t i = 0; i < limit_count; i++) {
        const struct limit_info *info = &limit_table[i];
        uint64_t value = member_value(from, info) * info->spawn_unit;
        char *member = (char *)to + info->spawn_offset;

        if (info->spawn_size == sizeof(uint32_t))
            *(uint32_t *)member = (uint32_t)value;
        else if (info->spawn_size)
            *(uint64_t *)member = value;
    }
}

void limits_maxima(struct run_limits *ret)
{
    for (size_t i = 0; i < limit_count; i++)
        *limit_member(ret, &limit_table[i]) = limit_table[i].max;
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* A default must neither cut short nor invalidate what the caller named. A caller who asks for
 * a minute of wall time means a minute of work; a caller who asks for 32 MiB of memory did not
 * ask for more disk than that. */
static void fit_defaults(struct run_limits *limits, const struct run_limits *named)
{
    if (named->cpu_ms == 0)
        limits->cpu_ms = larger(limits->cpu_ms, named->wall_ms);
    if (named->wall_ms == 0)
        limits->wall_ms = larger(limits->wall_ms, named->cpu_ms);
    if (named->disk_mb == 0)
        limits->disk_mb = smaller(limits->disk_mb, limits->memory_mb);
    else if (named->memory_mb == 0)
        limits->memory_mb = larger(limits->memory_mb, smaller(named->disk_mb, MEMORY_MAX_MB));
    if (named->file_size_mb == 0 && named->disk_mb != 0)
        limits->file_size_mb = larger(limits->file_size_mb, named->disk_mb);
    if (named->stack_mb == 0)
        limits->stack_mb = larger(1, smaller(limits->stack_mb, limits->memory_mb / 2));
}

struct box_need limits_need(const struct run_limits *limits)
{
    return (struct box_need){.memory_mb = limits->memory_mb, .processes = limits->processes};
}

struct box_need box_need_larger(struct box_need a, struct box_need b)
{
    return (struct box_need){.memory_mb = larger(a.memory_mb, b.memory_mb),
        .processes = larger(a.processes, b.processes)};
}

struct box_need box_need_sum(struct box_need a, struct box_need b)
{
    return (struct box_need){
        .memory_mb = a.memory_mb + b.memory_mb, .processes = a.processes + b.processes};
}

void limits_fill(struct run_limits *limits, const struct run_limits *defaults)
{
    const struct run_limits named = *limits;

    for (size_t i = 0; i < limit_count; i++) {
        const struct limit_info *info = &limit_table[i];
        uint64_t *member = limit_member(limits, info);

        if (*member == 0 && defaults != NULL)
            *member = member_value(defaults, info);
        if (*member == 0)
            *member = info->fallback;
    }
    fit_defaults(limits, &named);
}

void limits_cap(struct run_limits *defaults, const struct run_limits *maxima)
{
    for (size_t i = 0; i < limit_count; i++) {
        const struct limit_info *info = &limit_table[i];
        uint64_t *member = limit_member(defaults, info);
        uint64_t max = member_value(maxima, info);

        if ((*member != 0 ? *member : info->fallback) > max)
            *member = max;
    }
}

void limits_raise(struct run_limits *limits, const struct run_limits *other)
{
    for (size_t i = 0; i < limit_count; i++) {
        uint64_t *member = limit_member(limits, &limit_table[i]);
        uint64_t value = member_value(other, &limit_table[i]);

        if (value > *member)
            *member = value;
    }
}

/* Prints a number the way the field is written: 0.05 cpus, not 50. */
static void show(const struct limit_info *info, uint64_t value, char *out, size_t out_size)
{
    if (info->scale == 1)
        (void)snprintf(out, out_size, "%" PRIu64, value);
    else
        (void)snprintf(out, out_size, "%g", (double)value / info->scale);
}

int limits_check(const struct run_limits *limits, const struct run_limits *maxima,
    const char *prefix, struct err *err)
{
    char field[sizeof(err->field)];

    for (size_t i = 0; i < limit_count; i++) {
        const struct limit_info *info = &limit_table[i];
        uint64_t value = member_value(limits, info);
        uint64_t max = member_value(maxima, info);
        char given[32], least[32], most[32];

        if (value >= info->min && value <= max)
            continue;
        show(info, value, given, sizeof(given));
        show(info, info->min, least, sizeof(least));
        show(info, max, most, sizeof(most));
        (void)snprintf(field, sizeof(field), "%s%s", prefix, info->name);
        return err_field(
            err, field, "%s is %s; it must be from %s to %s", field, given, least, most);
    }
    if (limits->disk_mb > limits->memory_mb) {
        (void)snprintf(field, sizeof(field), "%sdisk_mb", prefix);
        return err_field(err, field,
            "%s is %" PRIu64 " but the files of a box live in its memory of %" PRIu64
            " MiB; raise memory_mb",
            field, limits->disk_mb, limits->memory_mb);
    }
    return 0;
}

/* Reads one number of a limits object, in the units of the member. */
static int get_limit(const struct limit_info *info, const char *field, const json_t *value,
    uint64_t *ret, struct err *err)
{
    int64_t whole;
    double scaled = json_number_value(value) * info->scale;
    if (info->scale == 1 ? !json_whole(value, &whole) : !json_is_number(value))
        return err_field(err, field, "%s must be %s", field,
            info->scale == 1 ? "a whole number" : "a number");
    if (!(scaled >= 1) || scaled > 1e15)
        return err_field(err, field, "%s is out of range", field);
    *ret = (uint64_t)(scaled + 0.5);
    return 0;
}

int limits_decode(
    const json_t *value, const char *prefix, struct run_limits *ret, struct err *err)
{
    const char *key;
    json_t *item;
    char field[96];
    if (!json_is_object(value)) {
        (void)snprintf(field, sizeof(field), "%.*s", (int)strlen(prefix) - 1, prefix);
        return err_field(err, field, "%s must be an object of numbers", field);
    }
    json_object_foreach((json_t *)value, key, item)
    {
        const struct limit_info *info = NULL;
        for (size_t i = 0; i < limit_count; i++) {
            if (str_eq(limit_table[i].name, key))
                info = &limit_table[i];
        }
        (void)snprintf(field, sizeof(field), "%s%.64s", prefix, key);
        if (!info)
            return err_field(err, field, "unknown limit");
        int r = get_limit(info, field, item, limit_member(ret, info), err);
        if (r < 0)
            return r;
    }
    return 0;
}
