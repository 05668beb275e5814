/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the spawner (spawn/zygote.c) and the library that an interpreter loads (warm/warm.c) say
 * to each other, over descriptor 3 of a zygote or over the socket of a parked box. */

#include "proto/spawn.h"

#include <stdint.h>

enum {
    ZYGOTE_SOCKET_FD = 3,
    ZYGOTE_STAGE_FD, /* the top of the root's mount namespace, outside the zygote's own / */
    ZYGOTE_LIFE_FD,  /* the spawner's, for boxes: inside_follow() */
};

/* Descriptors: the box's link, `join_count` control groups to be joined, the one to be cloned
 * into if has_into, the network namespace if has_network, then either the socket on which the
 * job will come (parked) or the job, stdout, stderr, stdin if BOX_STDIN, and the collect pipe
 * if BOX_COLLECT or the channel if BOX_CHANNEL. Answered by struct zygote_reply, with a pidfd
 * when pid is positive, and the network namespace if that is new. */
struct zygote_request {
    struct spawn_box box;
    uint32_t payload_uid;
    uint32_t join_count;
    uint32_t has_into;
    uint32_t has_memory;
    uint32_t landlock_abi;
    uint32_t is_parked;
    uint32_t has_network;
};

struct zygote_reply {
    int32_t pid; /* or negative errno */
};

/* On the socket of a parked box: flags of struct spawn_box, with job, stdout, stderr, stdin if
 * BOX_STDIN and the channel if BOX_CHANNEL. */
struct zygote_hand {
    uint32_t flags;
    uint32_t cpu_s; /* of spawn_limits; who was made ahead does not know them */
    uint64_t file_bytes;
    uint64_t stack_bytes;
};
