/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Shared by the files of hermes-fork. The program makes one copy of a session from outside
 * (make.c), or serves the files or a terminal of a copy (serve.c), as its order says
 * (proto/copy.h). spawn/copy.h has the whole picture, docs/internals/session-fork.md the
 * reasons. */

#include "cgroup/cgroup.h"
#include "proto/copy.h"

#include <sys/types.h>

/* State of one job. */
struct tracee;
struct fork_work {
    struct copy_order order;
    struct cgroup_host host;
    struct cgroup_leaf leaf;        /* the copy's */
    struct cgroup_leaf parent_leaf; /* the original's */

    /* make.c and identify.c only: */
    pid_t worker;     /* this process, the parent of all helpers */
    pid_t init_pid;   /* box init of the family */
    pid_t parent_pid; /* a process in the namespaces of the original */
    int users_fd;     /* max_user_namespaces of the box, see copy_limit_users() */
    int users_socket; /* on which a child sends users_fd */
    pid_t pid;        /* of the copy, once hello has come */
    int pidfd;
    int proc_fd;             /* /proc/PID of the copy */
    struct tracee *copy;     /* of inject.h */
    int from_fds[3];         /* the original's /box, /tmp, /dev/shm */
    int places[COPY_PLACES]; /* places of a copy that is a run */
};

/* Puts the calling process into the copy's control group, in every tree. */
int fork_join(const struct fork_work *w);

/* make.c, serve.c */
_Noreturn void fork_make(struct fork_work *w);
_Noreturn void fork_serve_files(const struct fork_work *w);
_Noreturn void fork_serve_terminal(const struct fork_work *w);

enum { FORK_PIDS_MAX = 2048 }; /* most processes of a session that can be copied */

/* identify.c. fork_know_family() finds box init and the original, fork_hear_hello() waits for
 * the copy, fork_know_copy() makes sure that it belongs to the original's box. */
int fork_know_family(struct fork_work *w);
int fork_hear_hello(struct fork_work *w);
int fork_know_copy(struct fork_work *w);
int fork_read_inner_pid(const struct fork_work *w, uint32_t *ret);

/* 0 when no process in the original's group shares memory, descriptors or directories with the
 * copy, and the copy has one thread and is alone in its own group. */
int fork_check_alone(const struct fork_work *w);

int fork_open_proc(pid_t pid, const char *name, int flags);

/* Runs a part in a child: namespaces and rights that the part gives up are the child's. */
int fork_in_child(const struct fork_work *w, int (*part)(const struct fork_work *w));

/* check.c: 0, or negative errno when the copy has something that it must not have. */
int fork_check_rights(const struct fork_work *w);
int fork_check_reach(const struct fork_work *w);
