/* SPDX-License-Identifier: Apache-2.0 */

/* See probe.h. hermes-setup makes the attempts (setup/probe.c). */

#include "spawn/probe.h"

#include "box/landlock.h"
#include "spawn/setup.h"

#include <errno.h>

/* Features that every box needs, so that a box without them never starts. */
static const uint32_t needed =
    1u << FEATURE_USERNS | 1u << FEATURE_NAMESPACES | 1u << FEATURE_MOUNT_API |
    1u << FEATURE_PROC | 1u << FEATURE_PIVOT | 1u << FEATURE_NNP | 1u << FEATURE_SECCOMP |
    1u << FEATURE_CLOSE_RANGE | 1u << FEATURE_OPENAT2 | 1u << FEATURE_PIDFD;

static void set(
    struct spawn_reply *reply, enum spawn_feature feature, bool enforced, int reason)
{
    if (enforced)
        reply->enforced |= 1u << feature;
    else
        reply->enforced &= ~(1u << feature);
    reply->reason[feature] = enforced ? 0 : reason ? reason : -ENOENT;
}

static bool has(const struct spawn_reply *reply, uint32_t features)
{
    return (reply->enforced & features) == features;
}

/* The table in docs/security.md, "Isolation levels". */
static enum spawn_level level_of(const struct spawn_reply *reply)
{
    const uint32_t limits = 1u << FEATURE_MEMORY | 1u << FEATURE_PIDS | 1u << FEATURE_CPU;
    if (reply->error || !has(reply, needed))
        return LEVEL_NONE;
    if (!has(reply, limits))
        return reply->landlock_abi >= LANDLOCK_LEAST_ABI ? LEVEL_PROCESS : LEVEL_NONE;
    return has(reply, 1u << FEATURE_UID_RANGE | 1u << FEATURE_LANDLOCK) ? LEVEL_FULL
                                                                        : LEVEL_STRONG;
}

static void fill_host(const struct spawner *s, struct spawn_reply *reply)
{
    const struct cgroup_host *c = &s->cgroups;
    bool accounts = c->use & (TREE_KILL | TREE_CPUACCT);
    reply->cgroup = c->mode;
    reply->landlock_abi = (uint32_t)s->landlock_abi;
    set(reply, FEATURE_UID_RANGE, s->ids.unique, s->ids.reason);
    set(reply, FEATURE_MEMORY, c->use & TREE_MEMORY, c->reason);
    set(reply, FEATURE_PIDS, c->use & TREE_PIDS, c->reason);
    set(reply, FEATURE_CPU, (c->use & TREE_CPU) && accounts, c->reason);
    set(reply, FEATURE_KILL, c->use & TREE_KILL, c->reason);
    set(reply, FEATURE_INTO, c->use & TREE_KILL, c->reason);
    set(reply, FEATURE_LANDLOCK, s->landlock_abi >= 3, -ENOSYS);
}

void probe_known(const struct spawner *s, struct spawn_reply *reply)
{
    reply->enforced |= needed;
    fill_host(s, reply);
    reply->level = level_of(reply);
}

void probe_all(struct spawner *s, struct spawn_reply *reply)
{
    const struct setup_order order = {.kind = SETUP_PROBE, .protocol = SPAWN_PROTOCOL};
    struct setup_answer probed;
    unsigned count;
    int r = setup_call(&s->helper, &order, sizeof(order), &probed, NULL, 0, &count);
    probe_known(s, reply);
    for (unsigned i = 0; i < FEATURE_COUNT; i++) {
        if (r < 0 ? (needed & 1u << i) != 0 : probed.reason[i] < 0)
            set(reply, i, false, r < 0 ? r : probed.reason[i]);
    }
    reply->level = level_of(reply);
}
