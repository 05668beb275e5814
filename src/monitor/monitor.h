/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* hermes-monitor runs as root, or as the user who starts it. It reads settings and keys, opens
 * the listening sockets, starts the spawner and the server, and restarts either when it dies.
 */

#include "base/err.h"
#include "run/engine.h"
#include "state/config.h"
#include "state/keys.h"

#include <stdbool.h>
#include <sys/types.h>

enum { MONITOR_MAX_LISTEN = 32, MEMORY_GROUP_NAME = 48 };

/* The control group that limits the server's memory. */
struct memory_group {
    int fd, parent_fd; /* -1: there is none */
    bool v2;
    char name[MEMORY_GROUP_NAME];
};

struct monitor {
    struct config config; /* what the server will get */
    struct keys keys;
    struct runtime_registry runtimes;
    struct engine *engine;
    struct engine_options engine_options;
    struct buf table; /* the engine table that the server has */
    int listen_fds[MONITOR_MAX_LISTEN];
    unsigned listen_count;
    char *unix_path;  /* socket file to remove at the end; NULL for none */
    char *server_dir; /* directory that the server may write to */
    int lock_fd;
    struct memory_group memory_group;
    uid_t uid; /* user and group of the server */
    gid_t gid;
};

/* listen.c: opens the addresses of the settings, or takes the sockets of the service manager.
 */
int listen_open(struct monitor *m, struct err *err);
void listen_close(struct monitor *m);

/* Adds a problem for every invalid address, and for every address that is not loopback when
 * there is no key. */
void listen_check(const struct monitor *m, struct strv *problems);

/* memory_group.c: makes the control group, or logs why there is none. On cgroup v2 the spawner
 * must have started before: it prepares the group above. */
void memory_group_open(struct memory_group *g, uint64_t limit_mb);
int memory_group_join(const struct memory_group *g); /* moves the calling process into it */
void memory_group_close(struct memory_group *g);     /* no process may be in it any more */

/* notify.c: sends a state such as "READY=1" to the service manager, if there is one. */
void notify_send(const char *state);

/* greet.c: prints addresses and a first command to a terminal. */
void greet(const struct monitor *m);

/* supervise.c: starts both programs and watches them until SIGTERM. Returns the exit status. */
int supervise(struct monitor *m);
