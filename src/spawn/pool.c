/* SPDX-License-Identifier: Apache-2.0 */

/* See pool.h. Decides when to start and when to end boxes of pools; box_parked.c does it. */

#include "spawn/pool.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"
#include "spawn/box_parts.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    TICK_MS = 1000,  /* between two looks at the host's memory */
    KEEP_MS = 60000, /* how long a pool stays larger than its minimum after the last miss */
    RETRY_MS = 1000, /* after the first failure; doubles with each further one */
    RETRY_DOUBLES = 6,
    PATIENCE_MS = 60000, /* time for a program to become ready */
};

int pool_add(struct spawner *s, const struct spawn_pool *p, int package_fd)
{
    cleanup_close int owned = package_fd;
    if (s->pool_count == SPAWN_MAX_POOLS || p->root >= s->root_count ||
        p->exec >= s->roots[p->root].exec_count || p->max < p->min)
        return -EINVAL;
    s->pools[s->pool_count++] = (struct pool){.root = p->root,
        .exec = p->exec,
        .min = p->min,
        .max = p->max,
        .want = p->min,
        .base_bytes = p->base_bytes,
        .limits = p->limits,
        .package_fd = take_fd(&owned)};
    return 0;
}

static bool serves(const struct pool *p, const struct spawn_box *request)
{
    return p->root == request->root && request->exec == 0 && !request->mount_count &&
           !request->remove && !(request->flags & BOX_CHANNEL) &&
           memcmp(&p->limits, &request->limits, sizeof(p->limits)) == 0;
}

static bool fits(
    const struct spawner *s, const struct box *box, const struct spawn_box *request)
{
    return box->state == STATE_READY && serves(&s->pools[box->maker], request);
}

/* Subtracts the memory that the rehearsal left. The memory of the program stays in the count: a
 * cold box has it as well. */
static void note_base(struct spawner *s, struct box *box)
{
    struct cgroup_usage usage;
    uint64_t base = s->pools[box->maker].base_bytes;
    cgroup_leaf_usage(&s->cgroups, &box->leaf, &usage);
    box->base_cpu_ns = usage.cpu_ns;
    if (base)
        box->base_memory = box_above(cgroup_leaf_memory(&s->cgroups, &box->leaf), base);
}

void pool_miss(struct spawner *s, const struct spawn_box *request)
{
    for (uint32_t i = 0; i < s->pool_count; i++) {
        struct pool *p = &s->pools[i];
        if (!serves(p, request))
            continue;
        p->missed_ms = clock_ms();
        if (p->want < p->max)
            p->want++;
    }
}

/* After a box that was lost the next start waits longer. */
static void on_change(struct spawner *s, const struct box *box, enum box_state to)
{
    struct pool *p = &s->pools[box->maker];
    p->is_starting = p->is_starting && box->state != STATE_PARKED;
    p->parked -= to != STATE_READY;
    if (to == STATE_READY)
        p->failures = 0;
    if (to <= STATE_STARTING)
        return;
    p->retry_ms = clock_ms() + ((uint64_t)RETRY_MS << p->failures);
    if (p->failures < RETRY_DOUBLES)
        p->failures++;
}

const struct box_ahead pool_ahead = {fits, note_base, on_change};

/* The number after a name in /proc/meminfo, in KiB. */
static uint64_t meminfo_value(const char *text, const char *name)
{
    const char *at = strstr(text, name);
    return at ? strtoull(at + strlen(name), NULL, 10) : 0;
}

/* Reads the host's file through a descriptor opened at the set-up: the spawner moves between
 * root trees, and the /proc that it sees depends on where it is. If it cannot be read, memory
 * is not short. One percent of hysteresis keeps the answer from flapping. */
static bool is_memory_short(const struct spawner *s)
{
    char text[512];
    uint64_t least = s->setup.park_free_percent + (s->is_short ? 1 : 0);
    ssize_t n = pread(s->meminfo_fd, text, sizeof(text) - 1, 0);
    if (n <= 0)
        return false;
    text[n] = '\0';
    uint64_t total = meminfo_value(text, "MemTotal:");
    return meminfo_value(text, "MemAvailable:") < total / 100 * least;
}

static void look_at_memory(struct spawner *s)
{
    uint64_t now = clock_ms();
    if (now < s->memory_ms)
        return;
    s->memory_ms = now + TICK_MS;
    s->is_short = s->setup.park_free_percent && is_memory_short(s);
}

/* Accounting from the middle of a process's life needs counters of the box's own. Rootless
 * servers have no zygotes either. */
static bool can_park(const struct spawner *s)
{
    unsigned use = s->cgroups.use;
    return !s->ids.rootless && use & TREE_MEMORY && use & (TREE_KILL | TREE_CPUACCT);
}

static bool start_one(struct spawner *s, int index)
{
    struct pool *p = &s->pools[index];
    uint64_t now = clock_ms();
    /* As with zygotes: while a run has a box, start one only if less than half of the pool is
     * left. */
    if (p->is_starting || p->parked >= p->want || now < p->retry_ms ||
        (s->running && p->parked * 2 >= p->want))
        return false;
    p->is_starting = true;
    p->started_ms = now;
    if (box_park_program(s, index) < 0) {
        p->is_starting = false;
        p->retry_ms = p->retry_ms > now ? p->retry_ms : now + RETRY_MS;
    }
    return true;
}

bool pool_tend(struct spawner *s)
{
    if (!s->setup.park_free_percent && !s->pool_count)
        return false;
    look_at_memory(s);
    if (s->is_short)
        return box_drop_parked(s, NULL, -1);
    for (uint32_t i = 0; i < s->pool_count; i++) {
        struct pool *p = &s->pools[i];
        uint64_t now = clock_ms();
        if (p->want > p->min && now > p->missed_ms + KEEP_MS)
            p->want = p->min;
        bool hangs = p->is_starting && now > p->started_ms + PATIENCE_MS;
        if (hangs)
            p->retry_ms = now + PATIENCE_MS;
        if ((hangs || p->parked > p->want) && box_drop_parked(s, &pool_ahead, (int)i))
            return true;
    }
    for (uint32_t i = 0; can_park(s) && i < s->pool_count; i++) {
        if (start_one(s, (int)i))
            return true;
    }
    return false;
}

int pool_pause_ms(const struct spawner *s)
{
    bool has_parked = s->pool_count > 0;
    for (uint32_t i = 0; i < s->zygote_count; i++)
        has_parked = has_parked || s->zygotes[i].park || s->zygotes[i].idle_ms;
    return has_parked ? TICK_MS : -1;
}
