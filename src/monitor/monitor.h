/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* hermes-monitor: root, or the user who starts it; reads settings and keys, binds, starts the
 * spawner and the server, and starts either again when it dies. */

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
    struct config config; /* as the server gets it */
    struct keys keys;
    struct runtime_registry runtimes;
    struct engine *engine;
    struct engine_options engine_options;
    struct buf table; /* of the engine that the server knows */
    int listen_fds[MONITOR_MAX_LISTEN];
    unsigned listen_count;
    char *unix_path;  /* to be removed at the end; "" for none */
    char *server_dir; /* what the server may write to */
    int lock_fd;
    struct memory_group memory_group;
    uid_t uid; /* of the server */
    gid_t gid;
};

/* listen.c: binds what the settings name, or takes the sockets of the service manager. */
int listen_open(struct monitor *m, struct err *err);
void listen_close(struct monitor *m);

/* Adds a problem for every address that is not loopback while there is no key. */
void listen_check(const struct monitor *m, struct strv *problems);

/* memory_group.c: makes the group, or says in the log why there is none. On v2 a spawner must
 * have been started, which prepares the group above. */
void memory_group_open(struct memory_group *g, uint64_t limit_mb);
int memory_group_join(const struct memory_group *g); /* the caller enters it */
void memory_group_close(struct memory_group *g);     /* nobody may be in it any more */

/* notify.c: tells the service manager, if there is one: "READY=1". */
void notify_send(const char *state);

/* supervise.c: starts both and watches them until SIGTERM; returns the exit status. */
int supervise(struct monitor *m);
