/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Boxes seen from the spawner: start, watch, kill, account, clean up. Also the state of the
 * whole spawner (struct spawner). */

#include "cgroup/cgroup.h"
#include "cgroup/pool.h"
#include "proto/copy.h"
#include "proto/spawn.h"
#include "spawn/box_kinds.h"
#include "spawn/ids.h"
#include "spawn/image.h"
#include "spawn/network/egress.h"
#include "spawn/network/network.h"
#include "spawn/pool.h"
#include "spawn/rootfs.h"
#include "spawn/shares.h"
#include "spawn/zygote.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Helpers for files and terminals that one copy may have at a time. */
enum { FORK_MAX_SERVERS = 12 };
/* BOX_MAX_FDS: the most descriptors of a request (struct spawn_box). */
enum { MAX_BOXES = 4096, BOX_MAX_FDS = 7 };

struct box {
    enum box_state state;
    const struct box_kind *kind;
    int socket;  /* to the server or `hermes run`; -1 for a ready box */
    int link;    /* init link, to box init; of a copy: to the process that makes it */
    int hand;    /* package socket of a ready box until it has its package; of a copy: the hello
                    socket */
    int network; /* its network namespace, if another box can use it afterwards; else -1 */
    uint32_t network_owner; /* NETWORK_OURS or the serial number of its zygote (network.h) */
    uint64_t network_key;   /* the key that its network namespace served before: a ready box can
                               serve that key only; or NETWORK_NEW */
    struct box_egress egress; /* the kit and the channel, if it has a network */
    int pidfd; /* of box init, or of the copy's process; -1 until the zygote, or hermes-fork,
                * has sent it: until then the process is not watched */
    int slot;
    int maker;             /* index of its zygote or pool */
    int kept[BOX_MAX_FDS]; /* descriptors of the request until the zygote has answered, in case
                              the box must be started cold; of a ready box that waits for its
                              kit: those of its package */
    unsigned kept_count;
    struct cgroup_leaf leaf;
    struct cgroup_usage at_exit;
    uint64_t request_ns;
    uint64_t start_ns; /* when the program began; 0: it has not */
    uint64_t end_ns;   /* when the program of a run ended by itself; 0: it has not */
    uint64_t base_cpu_ns;
    uint64_t base_memory;
    uint64_t init_cpu_ns; /* CPU time of the payload and its children as box init saw it; used
                             where no cgroup counts */
    uint64_t init_rss;
    int32_t status;
    int32_t error;  /* why the box failed, negative errno; 0: it has not */
    uint32_t step;  /* in which it failed */
    bool killed;    /* by command; reports of the box still count until it is dead */
    bool watched;   /* epoll reports the end of box init */
    bool oom_event; /* v1: the memory group raised an event; look for a kill */
    bool oom_kill;  /* the memory limit killed a process, and the whole box was killed */
    bool disk_full;
    uint32_t owner; /* number of the owner (shares.h), valid if has_owner */
    bool has_owner; /* false for a ready box */
    bool is_busy;
    bool is_dying;    /* killed, box init too: it never becomes idle again */
    uint64_t idle_ms; /* when the box stops being busy, clock_ms(); 0: no idle command came */

    uint32_t flags; /* BOX_ bits of its request, or of its zygote */
    struct spawn_limits limits;

    /* Copies of sessions (copy.h). Fields of a box that can be copied: */
    bool is_aside; /* box init is in the control group `aside` */
    struct cgroup_leaf aside;
    unsigned forks;    /* live copies */
    uint32_t fork_ids; /* bit per number in use */
    unsigned next_fork;
    struct box *copy; /* the copy that is being made, or NULL */
    /* Fields of a copy: */
    bool is_paused; /* COMMAND_PAUSE */
    int root;       /* the box whose init is its init, too; of a box that is no copy: itself */
    int parent;     /* the box it was copied from; valid while `copy` of that box is this one */
    int fork_number; /* its uid, above the root's payload's */
    uint32_t pid; /* of a run: its number in the box; 0: not known, or box init has reported */
    uint32_t lineage; /* bits of its own number and those of its ancestors */
    unsigned depth;
    int users_fd; /* max_user_namespaces of the box while hermes-fork may raise it, see
                     copy_limit_users() */
    pid_t helper; /* hermes-fork, which makes the copy */
    pid_t servers[FORK_MAX_SERVERS]; /* hermes-fork that serves files or a terminal */
    int places[COPY_PLACES];         /* of a run: its /box, /tmp, /dev/shm; else -1 */
    uint64_t ends[4]; /* inodes of its stdout, stderr, channel, and of the hello socket */
};

/* All state of the spawner. The setup, roots, sources, and the lists of zygotes and pools are
 * complete at the seal; the rest changes with every box. */
struct spawner {
    struct spawn_setup setup;
    bool sealed;
    bool is_lost; /* the spawner could not leave a namespace of a box: it starts nothing more
                     and ends */
    struct ids ids;
    struct cgroup_host cgroups;
    struct network network;
    struct egress egress;
    int channel; /* the network channel of the request that is being served; -1: none */
    int landlock_abi;
    uint32_t root_count;
    struct tree roots[SPAWN_MAX_ROOTS + SPAWN_MAX_IMAGES]; /* from SPAWN_MAX_ROOTS on: of images
                                                              (image.h) */
    struct images images;
    uint32_t source_count;
    bool writable_sources[SPAWN_MAX_SOURCES];
    uint32_t zygote_count;
    struct zygote zygotes[SPAWN_MAX_ZYGOTES];
    uint32_t zygote_serial;
    gid_t zygote_gid; /* group of all zygotes; 0: each has a group of its own */
    uint32_t pool_count;
    struct pool pools[SPAWN_MAX_POOLS];
    int meminfo_fd;     /* /proc/meminfo of the host */
    bool is_short;      /* the host is short of memory: no ready box is kept */
    uint64_t memory_ms; /* when to read meminfo again, clock_ms() */
    uint64_t oom_ms; /* until when to look for kills in boxes with an oom_event, clock_ms(); 0:
                        not now */
    int current_ns;  /* the mount namespace that the spawner is in */
    int epoll_fd;
    int life_fd; /* the life file, see inside_follow() */
    int fork_fd; /* the program hermes-fork, or negative errno: then nothing can be copied */
    struct setup helper; /* hermes-setup, until the seal */
    int fd_end; /* descriptors from this number on are a reserve for receiving requests */
    uint64_t refusals;   /* last value of cgroup_host_refusals() */
    uint64_t refused_ns; /* when that value last grew, clock_ns() */
    struct leaves leaves;
    struct shares shares;
    uint64_t last_key; /* owner of the last box that was requested: ready boxes are made with
                          network namespaces that served it; NETWORK_NEW: none yet */
    unsigned running;  /* runs that have a box; sessions and ready boxes do not count */
    unsigned box_end;  /* no box at or past this index was ever used */
    struct box boxes[MAX_BOXES];
};

/* What an epoll event is about. The event's data is index * TAG_COUNT + tag; the index is that
 * of a box, or of a zygote for TAG_ZYGOTE, or of a root for TAG_IMAGE. */
enum box_tag {
    TAG_CONTROL,
    TAG_SOCKET,
    TAG_LINK,
    TAG_PIDFD,
    TAG_OOM,
    TAG_ZYGOTE,
    TAG_IMAGE,
    TAG_COUNT
};

/* Events that are not of a box. */
enum {
    EVENT_PARENT = TAG_COUNT + TAG_CONTROL,
    EVENT_EGRESS = 2 * TAG_COUNT + TAG_CONTROL,
    EVENT_KIT = 3 * TAG_COUNT + TAG_CONTROL
};

/* Receives a request, a command or an answer with its descriptors, at most `max` and at most
 * BOX_MAX_FDS. Works even when no other descriptor is free, because the sender needs an answer.
 * Does not wait: fdpass_receive_now(). */
ssize_t box_receive(const struct spawner *s, int socket, void *data, size_t size, int *fds,
    unsigned max, unsigned *ret_count);

/* Whether one of the descriptors comes from that reserve and must be closed again. */
bool box_fds_spare(const struct spawner *s, const int *fds, unsigned fd_count);

/* Starts a box from a request and its descriptors, all of which it takes. A failure is reported
 * on the box's socket, if the request has one. */
void box_start(struct spawner *s, const struct spawn_box *request, int *fds, unsigned fd_count);

/* Make one ready box, of a zygote or of a pool. */
int box_park(struct spawner *s, int zygote);
int box_park_program(struct spawner *s, int pool);

/* Orders a kit for a ready box of a zygote. False when there is no such box without one. */
bool box_equip_parked(struct spawner *s, int zygote);

/* The zygote has answered for `box`: with the pidfd of box init and a network namespace, if the
 * clone made one (takes both), or with an error. After an error a run is started cold. */
void box_born(struct spawner *s, struct box *box, int error, int pidfd, int network);

/* Ends one ready box of a pool or a zygote (pool_ahead, zygote_ahead and its number),
 * preferably one whose program is still starting; NULL: any ready box. False when there is
 * none. */
bool box_drop_parked(struct spawner *s, const struct box_ahead *of, int maker);

void box_event(struct spawner *s, struct box *box, enum box_tag tag);

/* Kills boxes in which the v1 memory limit has killed a process. Returns whether to call again
 * soon: the kernel sends the event before it kills. */
bool box_look_for_kills(struct spawner *s);

/* Shared with copy.c. box_new(): an empty box, or NULL. box_watch(): adds a
 * descriptor to epoll. box_tell(): sends an event without waiting. box_fail(): ends a box that
 * could not be made. */
struct box *box_new(
    struct spawner *s, enum box_state state, enum box_kind_name kind, int maker);
int box_watch(struct spawner *s, struct box *box, int fd, enum box_tag tag);
void box_tell(int socket, const struct spawn_event *event);
void box_fail(struct spawner *s, struct box *box, uint32_t step, int error);

/* The box serves a request of that owner from here on. Takes the socket. */
void box_own(struct spawner *s, struct box *box, uint32_t owner, int socket);

/* Kills every box and waits until they are gone, at most 5 s. */
void box_kill_all(struct spawner *s);
