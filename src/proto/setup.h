/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* How hermes-spawn uses hermes-setup, the program for what needs its rights before the first
 * box but not afterwards. It is executed with no argument, an empty environment and a
 * SOCK_SEQPACKET socket as descriptor 3. It takes orders one after the other and answers each
 * with one struct setup_answer. It ends when the socket closes. Orders are struct setup_order,
 * and the spawner's own SPAWN_MOUNT and SPAWN_ROOT messages as they came. */

#include "proto/box.h"
#include "proto/spawn.h"

#include <stdint.h>

/* SETUP_NAME: room for the name of a control group. SETUP_MAX_FDS: of an answer. */
enum { SETUP_SOCKET_FD = 3, SETUP_NAME = 48, SETUP_MAX_FDS = 1 + SPAWN_MAX_LAYERS };
_Static_assert((int)SETUP_MAX_FDS >= 1 + 2 * (int)CGROUP_MAX_TREES, "those of SETUP_HOST fit");

/* Values that enum spawn_kind does not have. */
enum setup_kind {
    /* tries the features that boxes need, for `hermes doctor` */
    SETUP_PROBE = 100,
    /* maps the subordinate ids of a rootless spawner into its user namespace; the answer has
     * the lock file of the ids (spawn/ids.h) */
    SETUP_MAP_IDS,
    /* chooses the ids, finds the control groups and makes the spawner's own. The answer has the
     * lock file of the ids, unless the spawner is rootless; then the directory of each tree;
     * then, if the spawner's own group has a name, its directory in each tree */
    SETUP_HOST,
    /* removes files and control groups of dead spawners. The last order, after SETUP_HOST; no
     * program reads the answer */
    SETUP_SWEEP,
    /* struct setup_image_order: makes a copy of the mount namespace of a root, which comes
     * along, and mounts layers in it. Comes after the seal; a hermes-setup of its own takes
     * it */
    SETUP_IMAGE,
    /* struct setup_order, with the mount namespace of an image's root and the pidfd of a
     * process of a box: mounts the layers in that box, too. Also after the seal */
    SETUP_JOIN,
};

struct setup_image_order {
    uint32_t kind; /* SETUP_IMAGE */
    uint32_t protocol;
    uint32_t source; /* number of the directory of layers among the SPAWN_MOUNT messages */
    uint32_t reserved;
    struct spawn_image image;
};

struct setup_order {
    uint32_t kind;
    uint32_t protocol; /* SPAWN_PROTOCOL */
    int32_t pid;       /* SETUP_MAP_IDS: the spawner, and its ids outside the namespace */
    uint32_t uid;
    uint32_t gid;
    uint32_t is_rootless; /* SETUP_HOST and later orders */
    uint32_t has_ids;     /* boxes have ids of their own */
    uint32_t uid_base;    /* as in struct spawn_setup */
    uint32_t uid_count;
    uint32_t processes_total;
};

/* The answers to SPAWN_ROOT and SETUP_IMAGE have the descriptor of the mount namespace. For
 * SETUP_IMAGE those of the layers follow, each with a shared lock. */
struct setup_answer {
    int32_t error;               /* negative errno, or 0 */
    uint32_t step;               /* enum spawn_step that failed */
    char detail[SPAWN_PATH_MAX]; /* the path or name at fault, or "" */
    uint32_t uid_base;           /* SETUP_HOST: the range, and the control groups (cgroup.h) */
    uint32_t uid_count;
    uint32_t cgroup_mode;
    int32_t cgroup_reason;
    uint32_t tree_count;
    struct {
        uint32_t use;
        uint32_t is_v2;
    } trees[CGROUP_MAX_TREES];
    char group[SETUP_NAME]; /* name of the spawner's own group, or "" */
    /* SETUP_PROBE: 0, or negative errno of the attempt that failed. Features that are not tried
     * are 0. */
    int32_t reason[FEATURE_COUNT];
};
