/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* hermes-monitor runs as root, or as the user who starts it, as long as the server. It starts
 * the spawner, hermes-prepare, the server and hermes-egress, and restarts them when they die.
 * It parses nothing but a fixed struct: hermes-prepare reads settings, keys and languages, and
 * hands over the results as descriptors. */

#include "proto/handover.h"

#include <stdbool.h>
#include <sys/types.h>

enum { GROUP_NAME = 48 };

/* A directory of a control group. */
struct group_dir {
    int fd, parent_fd; /* -1: there is none */
    bool v2;
    char name[GROUP_NAME];
};

/* The control group of one program. On v1 memory and processors have a directory each. */
struct group {
    struct group_dir memory;
    struct group_dir cpu; /* on v1, if there is such a limit */
};
#define GROUP_NONE                                                                             \
    {                                                                                          \
        .memory = {.fd = -1, .parent_fd = -1}, .cpu = {.fd = -1, .parent_fd = -1 }             \
    }

struct monitor {
    struct handover_plan plan;
    int fds[FDPASS_MAX]; /* PLAN_*; the listening sockets last */
    unsigned fd_count;
    struct group server_group;
    struct group egress_group;
    struct group inject_group;
    struct group outside_groups[OUTSIDE_COUNT];
};

/* child.c: starts a program of the monitor's directory, with a socket at HANDOVER_FD. */
struct child {
    const char *program;
    const char *argument; /* or NULL */
    bool no_environment;
    bool own_session;          /* signals of the terminal do not reach it */
    const struct group *group; /* NULL: it stays in the group of the monitor, and keeps its
                                  user. Else it enters this group and becomes this user */
    uid_t uid;
    gid_t gid;
    bool may_gain; /* it may execute setuid programs */
};
/* Returns the pid, or negative errno. *ret_socket is our end of the socket. */
pid_t child_start(const struct child *child, int *ret_socket);
/* After the hand-over to a child: keeps it (*ret_pid), or kills it if `error` is negative.
 * Returns `error`. */
int child_keep(pid_t pid, int error, pid_t *ret_pid);
/* Waits until the child has ended by itself; kills it after a second. *pid becomes -1. */
void child_stop(pid_t *pid);

/* group.c: makes the control groups of the programs that this server has, or logs why there is
 * none. On cgroup v2 the spawner must have started before: it prepares the group above. */
void groups_open(struct monitor *m);
void groups_close(struct monitor *m);  /* no process may be in them any more */
int group_join(const struct group *g); /* moves the calling process into the group */

/* egress.c: hermes-egress. It belongs to a spawner and ends with it. */
struct egress {
    pid_t pid; /* -1: it does not run */
    int link;  /* our end of the socket of SPAWN_EGRESS; -1 without a spawner */
};
/* Makes the link and returns the spawner's end, or negative errno. */
int egress_link(struct egress *e);
/* Starts the program and gives the spawner its socket. It also gets `inject_link`, unless that
 * is -1. Returns 0 or negative errno. */
int egress_start(struct egress *e, const struct monitor *m, int inject_link);
/* Ends the program and closes the link. */
void egress_stop(struct egress *e);

/* inject.c: hermes-inject. It belongs to a hermes-egress and ends with it. */
struct inject {
    pid_t pid; /* -1: it does not run */
    int link;  /* our end of the link to hermes-egress; -1: there is none */
};
/* Makes a new link and returns the end of hermes-egress, or negative errno. */
int inject_link(struct inject *i);
/* Starts the program and gives hermes-egress its socket. Returns 0 or negative errno. */
int inject_start(struct inject *i, const struct monitor *m);
/* Ends the program, which has no hermes-egress any more, and closes the link. */
void inject_stop(struct inject *i);

/* outside.c: hermes-reach and hermes-places. Each serves one server after the other. */
struct outside_program {
    pid_t pid;    /* -1: it does not run */
    int socket;   /* the program ends when this closes */
    int calls[2]; /* the ends for the servers and for the program; -1 without one */
};
const char *outside_name(enum outside which);
int outside_open(struct outside_program *o); /* makes the socket for calls */
int outside_start(struct outside_program *o, const struct monitor *m, enum outside which);
void outside_stop(struct outside_program *o);

/* notify.c: sends a state such as "READY=1" to the service manager, if there is one. */
void notify_send(const char *state);

/* supervise.c: starts the programs and watches them until SIGTERM. Returns the exit status. */
int supervise(struct monitor *m);

/* main.c: closes the listening sockets, and removes the socket file. */
void stop_listening(struct monitor *m);
