/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Boxes seen from their parent, the spawner: start, watch, kill, account, clean up. */

#include "spawn/cgroup.h"
#include "spawn/ids.h"
#include "spawn/leaves.h"
#include "spawn/network.h"
#include "spawn/pool.h"
#include "spawn/protocol.h"
#include "spawn/shares.h"
#include "spawn/tree.h"
#include "spawn/zygote.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { FORK_MAX_SERVERS = 12 };
enum { MAX_BOXES = 4096, BOX_MAX_FDS = 6 };

struct box {
    bool used;
    int socket;  /* to whoever asked for it */
    int link;    /* to box init */
    int hand;    /* to the program of a parked box until it has its job, to a fork's copy */
    int network; /* its network namespace, if that can serve again */
    uint32_t network_owner; /* network.h */
    int pidfd;
    int slot;
    int zygote;            /* whose child it is; -1 for a cold box */
    int pool;              /* which keeps or kept it; -1 for none */
    bool is_unborn;        /* the zygote was asked for it; meanwhile nobody else looks at it */
    int kept[BOX_MAX_FDS]; /* what it will not need then */
    unsigned kept_count;
    bool is_parked; /* waits for a job */
    bool is_ready;  /* and its program too */
    struct cgroup_leaf leaf;
    struct cgroup_usage at_exit;
    uint64_t request_ns;
    uint64_t start_ns;
    uint64_t end_ns;
    uint64_t base_cpu_ns;
    uint64_t base_memory;
    uint64_t init_cpu_ns; /* of the payload and its children as init saw it; without a cgroup */
    uint64_t init_rss;
    int32_t status;
    int32_t error;
    uint32_t step;
    bool started;
    bool failed;
    bool exited;
    bool killed;
    bool watched;   /* epoll will tell of the end of init */
    bool told;      /* the end was reported; only the remains are left to clear away */
    bool oom_event; /* v1: there was reason to look for a kill by the memory limit */
    bool oom_kill;  /* there was one, and all of the box was killed */
    bool disk_full;
    bool collects;
    bool is_session;
    bool is_resting; /* a session without a program */
    uint32_t owner;  /* whose it is (shares.h), */
    bool has_owner;  /* if it is somebody's: a parked box is not */
    bool is_busy;
    uint64_t idle_ms; /* when it will not be any more; 0: that was not said */

    /* Forks (fork.h). Of a box that can be forked: */
    uint32_t flags;
    struct spawn_limits limits;
    bool is_aside;            /* init is in a group of its own, */
    struct cgroup_leaf aside; /* this one */
    int users_fd;             /* how many user namespaces there may be: fork_limit_users() */
    unsigned forks;           /* alive */
    uint32_t fork_ids;        /* their numbers */
    unsigned next_fork;
    bool init_gone;
    struct box *copy; /* the fork of it that is being made */
    /* Of a fork; pid and lineage also of what it was forked from. */
    bool is_fork;
    bool is_paused;   /* COMMAND_PAUSE */
    bool is_known;    /* pid and pidfd are what they should be */
    int root;         /* the box whose init it has */
    int parent;       /* the box it was copied from, as long as that has this `copy` */
    int fork_number;  /* its uid, above the root's payload's */
    uint32_t lineage; /* bits of its own number and those of its ancestors */
    unsigned depth;
    pid_t pid;
    pid_t helper;                    /* fork_work() */
    pid_t servers[FORK_MAX_SERVERS]; /* fork_files.c */
    uint64_t ends[4]; /* inodes of its stdout, stderr, channel, and of the hello socket */
};

/* Everything the spawner knows. Filled before the seal, read-only afterwards but for the boxes.
 */
struct spawner {
    struct spawn_setup setup;
    bool sealed;
    bool is_lost; /* could not leave a box's network: nothing may be started any more */
    struct ids ids;
    struct cgroup_host cgroups;
    struct network network;
    int landlock_abi;
    uint32_t root_count;
    struct tree roots[SPAWN_MAX_ROOTS];
    uint32_t source_count;
    struct tree_source sources[SPAWN_MAX_SOURCES];
    uint32_t zygote_count;
    struct zygote zygotes[SPAWN_MAX_ZYGOTES];
    uint32_t zygote_serial;
    gid_t zygote_gid; /* of all zygotes, or 0: each has its own */
    uint32_t pool_count;
    struct pool pools[SPAWN_MAX_POOLS];
    int meminfo_fd;     /* the host's /proc/meminfo */
    bool is_short;      /* of memory: nothing is parked */
    uint64_t memory_ms; /* when to look again */
    uint64_t oom_ms;    /* until when to look for kills in boxes with an oom_event */
    int current_ns;     /* mount namespace we are in */
    int epoll_fd;
    int life_fd;         /* inside_follow() */
    int fd_end;          /* descriptors from here on are for requests to be received with */
    uint64_t refusals;   /* cgroup_host_refusals() when somebody looked, */
    uint64_t refused_ns; /* and when they had become more */
    struct leaves leaves;
    struct shares shares;
    unsigned running; /* boxes that are not parked */
    unsigned box_end; /* no box at or past this index was ever used */
    struct box boxes[MAX_BOXES];
};

/* What an epoll event is about; the box's index is in the upper bits of the data. */
enum box_tag { TAG_CONTROL, TAG_SOCKET, TAG_LINK, TAG_PIDFD, TAG_OOM, TAG_ZYGOTE, TAG_COUNT };

/* Takes a request, a command or an answer with all its descriptors, `max` or less and at most
 * BOX_MAX_FDS, even where nothing else could be opened any more: who asked must be told. Waits
 * for nobody; see fdpass_receive_now(). */
ssize_t box_receive(const struct spawner *s, int socket, void *data, size_t size, int *fds,
    unsigned max, unsigned *ret_count);

/* Whether one of them is in that reserve, and may not be kept. */
bool box_fds_spare(const struct spawner *s, const int *fds, unsigned fd_count);

/* Starts a box from a request and its descriptors, all of which it takes. What fails is
 * reported on the box's socket, if there is one. */
void box_start(struct spawner *s, const struct spawn_box *request, int *fds, unsigned fd_count);

/* Makes a box of a zygote, or of a pool, ahead. */
int box_park(struct spawner *s, int zygote);
int box_park_program(struct spawner *s, int pool);

/* A zygote's answer for a box that it was asked for: its pidfd, and its network namespace if
 * that is new, both of which it takes, or why there is none. */
void box_born(struct spawner *s, struct box *box, int error, int pidfd, int network);

/* Ends one parked box of a pool, the one that is not ready first, or with -1 any parked box;
 * false when there is none. */
bool box_drop_parked(struct spawner *s, int pool);

void box_event(struct spawner *s, struct box *box, enum box_tag tag);

/* Ends boxes in which the memory limit has killed. Returns whether to look again soon: the
 * kernel tells before it kills. */
bool box_look_for_kills(struct spawner *s);

/* For fork.c too: an empty box, or NULL; a descriptor to listen to; a word to whoever asked for
 * it; the end of one that could not be made. */
struct box *box_new(struct spawner *s, int socket, int zygote);
int box_watch(struct spawner *s, struct box *box, int fd, enum box_tag tag);
void box_tell(int socket, const struct spawn_event *event);
void box_fail(struct spawner *s, struct box *box, uint32_t step, int error);

/* Kills every box and waits until nothing is left. */
void box_kill_all(struct spawner *s);
