/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* hermes-monitor runs as root, or as the user who starts it, as long as the server. It starts
 * the spawner, hermes-prepare and the server, and restarts them when they die. It parses
 * nothing but a fixed struct: hermes-prepare reads settings, keys and languages, and hands over
 * the results as descriptors. */

#include "proto/handover.h"

#include <stdbool.h>
#include <sys/types.h>

enum { MEMORY_GROUP_NAME = 48 };

/* The control group that limits the server's memory. */
struct memory_group {
    int fd, parent_fd; /* -1: there is none */
    bool v2;
    char name[MEMORY_GROUP_NAME];
};

struct monitor {
    struct handover_plan plan;
    int fds[FDPASS_MAX]; /* PLAN_*; the listening sockets last */
    unsigned fd_count;
    struct memory_group memory_group;
};

/* child.c: starts a program of the monitor's directory, with a socket at HANDOVER_FD. */
struct child {
    const char *program;
    const char *argument; /* or NULL */
    bool no_environment;
    bool is_server; /* runs as the user of the plan, in the memory group */
};
/* Returns the pid, or negative errno. *ret_socket is our end of the socket. */
pid_t child_start(const struct monitor *m, const struct child *child, int *ret_socket);

/* memory_group.c: makes the control group, or logs why there is none. On cgroup v2 the spawner
 * must have started before: it prepares the group above. */
void memory_group_open(struct memory_group *g, uint64_t limit_mb);
int memory_group_join(const struct memory_group *g); /* moves the calling process into it */
void memory_group_close(struct memory_group *g);     /* no process may be in it any more */

/* notify.c: sends a state such as "READY=1" to the service manager, if there is one. */
void notify_send(const char *state);

/* supervise.c: starts the programs and watches them until SIGTERM. Returns the exit status. */
int supervise(struct monitor *m);

/* main.c: closes the listening sockets, and removes the socket file. */
void stop_listening(struct monitor *m);
