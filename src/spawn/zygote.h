/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Zygotes: interpreters that have started, have loaded what most programs need, and are forked
 * into boxes. A zygote lives in the read-only tree of its root, in a user namespace of its own
 * that maps the ids of every box. It never reads an untrusted byte. On a request of the spawner
 * it clones a box (into fresh namespaces, as a child of the spawner) and writes the id maps.
 * The clone runs the same list of steps as a cold box (box/inside.h). Only then does the
 * program's process get the package, by descriptor. */

#include "cgroup/cgroup.h"
#include "proto/spawn.h"
#include "proto/zygote.h"
#include "spawn/box_kinds.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Requests to one zygote that may be unanswered. */
enum { ZYGOTE_MAX_BIRTHS = 128 };

/* One process of a zygote. */
struct zygote_process {
    int socket; /* -1 while it does not run */
    int pidfd;
    int slot;
    uint32_t serial;   /* number of this start */
    uint64_t start_ms; /* when it was started, clock_ms() */
    uint32_t made;     /* boxes that it was asked for */
    bool is_up;        /* it has reported that it is up */
    bool is_broken;    /* it failed or did not answer in time; zygote_tend() removes it */
    uint16_t births[ZYGOTE_MAX_BIRTHS]; /* indices of the boxes that it was asked for, in that
                                           order */
    unsigned birth_count;
    uint64_t asked_ms; /* time of the oldest request without an answer */
    struct cgroup_leaf leaf;
};

/* One registered zygote. */
struct zygote {
    uint32_t root;
    uint32_t flags;    /* BOX_CHANNEL: for sessions; BOX_FORKS: sessions that can be copied */
    bool is_wanted;    /* it is started: always, or because a request has needed it */
    uint64_t idle_ms;  /* as idle_s of struct spawn_zygote */
    uint64_t used_ms;  /* the last request */
    unsigned failures; /* failed starts in a row */
    uint32_t park;     /* ready boxes to keep */
    uint32_t parked;   /* ready boxes that exist, without the boxes in `kits` */
    uint32_t kits;     /* ready boxes that have a kit, or wait for it */
    bool wants_kits;   /* the last box with a network found a kit, or could have one */
    struct spawn_limits limits;
    int package_fd; /* package with arguments and environment of the zygote itself */
    struct zygote_process now;
    struct zygote_process next; /* replaces `now` once it is up */
    uint64_t base_memory; /* memory that the last ready box held when it got its package */
    uint64_t retry_ms;
};

/* Adds a zygote of the sealed table; takes package_fd. One for runs also gets a twin. */
int zygote_add(struct spawner *s, const struct spawn_zygote *z, int package_fd);

/* Lets zygotes clone boxes into the control groups of this spawner. For that they need a group
 * id that owns these groups and belongs to zygotes only. Where the spawner has no group of its
 * own, or no id is free, boxes join the groups themselves. */
int zygote_open_groups(struct spawner *s);

/* Index of the zygote that can make a box for the request now, or -1. Marks zygotes that are
 * started on demand as wanted. */
int zygote_find(struct spawner *s, const struct spawn_box *request);

/* Asks for the clone of box number `box` and does not wait. box_born() is called with the
 * answer, or with an error when none comes. */
int zygote_ask(struct zygote *z, const struct zygote_request *request, const int *fds,
    unsigned count, unsigned box);

/* Gives up zygotes that have not answered in time. Returns whether one owes an answer. */
bool zygote_check(struct spawner *s);

/* Called when the spawner is idle: starts one zygote or makes one ready box. Returns whether
 * there may be more to do. */
bool zygote_tend(struct spawner *s);

/* The socket of a zygote is readable: a message, or its end. */
void zygote_event(struct spawner *s, int index);
void zygote_kill_all(struct spawner *s);
