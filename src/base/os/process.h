/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What a process does between fork() and exec(), and the end of a child. */

#include <sys/types.h>

/* Resets all signals to their defaults and blocks none, also those that the C library keeps for
 * itself. Ignored signals survive exec. */
void process_reset_signals(void);

/* If root: becomes this user for good, without supplementary groups. In any case: gives up
 * all capabilities. Setuid programs still work; process_drop() is the rule, this the exception.
 * Returns 0 or negative errno; the caller then exits. */
int process_change_user(uid_t uid, gid_t gid);

/* Does that, empties the bounding set and sets no_new_privs: no program that is executed later
 * gains a right. */
int process_drop(uid_t uid, gid_t gid);

/* Does that as the user that the process already is, and closes its memory to other processes
 * of this user. */
int process_give_up(void);

/* Raises the limit of open descriptors to its maximum. */
void process_raise_descriptors(void);

/* Executes a program from the directory of the running program, and gives it `socket` as
 * descriptor `at`. `before` may be NULL; it gives up rights, after the program is opened and
 * before it starts. Returns only on failure, with negative errno. */
struct process_image {
    const char *program;
    char *const *argv;
    char *const *env;
    int socket; /* ours */
    int at;     /* the program finds it here */
    int (*before)(const void *context);
    const void *context;
};
int process_become(const struct process_image *image);

/* Waits for the end of a child, kills it after timeout_ms, and reaps it. */
void process_await(pid_t pid, int timeout_ms);
