/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Zygotes: interpreters that have started and loaded what most programs need, and are forked
 * into boxes. A zygote lives in the read-only tree of its root, in a user namespace of its own
 * that holds the ids of every box, and never reads a stranger's byte: the spawner tells it to
 * make a box, it clones one (into fresh namespaces, as a child of the spawner), writes the id
 * maps, and the clone walks the same list of steps as a cold box (inside.h). The job reaches
 * the program's process by descriptor, after all that.
 *
 * This header is what the spawner (zygote.c) and the library that the interpreter loads
 * (warm.c) say to each other, over descriptor 3 of the zygote. */

#include "spawn/cgroup.h"
#include "spawn/protocol.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

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

/* Boxes that one zygote may have been asked for and not answered yet. */
enum { ZYGOTE_MAX_BIRTHS = 128 };

/* One start of an interpreter. */
struct zygote_process {
    int socket; /* -1 while it does not run */
    int pidfd;
    int slot;
    uint32_t serial;                    /* of this start, */
    uint64_t start_ms;                  /* and when that was */
    uint32_t made;                      /* boxes, since then */
    bool is_up;                         /* it answers */
    bool is_broken;                     /* it did not */
    uint16_t births[ZYGOTE_MAX_BIRTHS]; /* boxes it was asked for, in that order */
    unsigned birth_count;
    uint64_t asked_ms; /* since when it has owed us an answer */
    unsigned lost; /* boxes that it was asked for and was given up about: it may make them */
    struct cgroup_leaf leaf;
};

/* What the spawner knows about one. */
struct spawner;
struct zygote {
    uint32_t root;
    uint32_t flags;  /* BOX_CHANNEL: for sessions; BOX_FORKS */
    bool is_wanted;  /* somebody has asked for a box of it, or it is always there */
    uint32_t park;   /* how many parked boxes there shall be */
    uint32_t parked; /* and are */
    struct spawn_limits limits;
    int job_fd; /* arguments and environment of the zygote itself */
    struct zygote_process now;
    struct zygote_process next; /* takes over once it is up */
    uint64_t base_memory;       /* what the last box held when it got its job */
    uint64_t retry_ms;
};

/* Remembers a registration; takes job_fd. */
int zygote_add(struct spawner *s, const struct spawn_zygote *z, int job_fd);

/* Makes the group of all boxes of this spawner (cgroup_host_nest()), into whose leaves zygotes
 * may clone. */
int zygote_nest_groups(struct spawner *s, uint32_t *ret_step);

/* Index of the zygote that can serve a request now, or -1. One that is started on demand will
 * be from now on. */
int zygote_find(struct spawner *s, const struct spawn_box *request);

/* Whether a parked box of it is what the request asks for. */
bool zygote_fits(
    const struct spawner *s, const struct zygote *z, const struct spawn_box *request);

/* Asks for the clone of a box, by its number, and does not wait: box_born() is called with the
 * answer, or when there is none. */
int zygote_ask(struct zygote *z, const struct zygote_request *request, const int *fds,
    unsigned count, unsigned box);

/* Gives up zygotes that have not answered in time, and reaps what they made all the same.
 * Returns whether one owes an answer, or a box may be left. */
bool zygote_check(struct spawner *s);

/* Called when nobody waits for us: starts zygotes and parks boxes, one thing at a time. Returns
 * whether there is more to do. */
bool zygote_tend(struct spawner *s);

/* A message from, or the end of, a zygote. */
void zygote_event(struct spawner *s, int index);
void zygote_kill_all(struct spawner *s);

/* On the socket of a parked box: flags of struct spawn_box, with job, stdout, stderr, stdin if
 * BOX_STDIN and the channel if BOX_CHANNEL. */
struct zygote_hand {
    uint32_t flags;
    uint32_t cpu_s; /* of spawn_limits; who was made ahead does not know them */
    uint64_t file_bytes;
    uint64_t stack_bytes;
};
