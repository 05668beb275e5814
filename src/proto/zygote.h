/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The messages between the spawner (spawn/zygote.c, spawn/box_parked.c) and the library that an
 * interpreter loads (warm/warm.c): on descriptor 3 of a zygote, and on the package socket of a
 * ready box. */

#include "proto/spawn.h"

#include <stdint.h>

enum {
    ZYGOTE_SOCKET_FD = 3,
    ZYGOTE_STAGE_FD, /* the top of the root's mount namespace; the zygote itself is in a chroot
                        below it */
    ZYGOTE_LIFE_FD,  /* the spawner's life file, for inside_follow() in boxes */
};

/* Request for one box. Descriptors: the box's end of the init link, `join_count` control groups
 * to join, the one to clone into if has_into, the network namespace if has_network. A ready box
 * (is_parked) then gets its end of the package socket. Any other box gets the package, stdout,
 * stderr, stdin if BOX_STDIN, and the collect pipe if BOX_COLLECT or the channel if
 * BOX_CHANNEL. The answer is a struct zygote_reply, with a pidfd if a process was cloned, and
 * with the network namespace if the clone made a new one. */
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

/* On the package socket of a ready box: flags of struct spawn_box, with the package, stdout,
 * stderr, stdin if BOX_STDIN and the channel if BOX_CHANNEL. */
struct zygote_hand {
    uint32_t flags;
    uint32_t cpu_s; /* these three are limits of the request; a ready box was made before they
                       were known */
    uint64_t file_bytes;
    uint64_t stack_bytes;
};
