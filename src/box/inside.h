/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The inside of a box, from clone to exec. inside_run() is an ordered list of steps. If one
 * fails, the box ends before the payload exists. Every kind of start uses the same list. */

#include "proto/box.h"
#include "proto/spawn.h"

#include <linux/securebits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Everything that a box is born with. Descriptors are the box's ends only; -1 where absent. */
struct inside {
    const struct spawn_box *box;
    const char *exec_path;
    bool unique_ids;  /* init and payload have different ids */
    bool has_network; /* the box is in a network namespace that was made ahead, with loopback
                       * up */
    bool has_memory;  /* a memory cgroup holds the limit; else RLIMIT_AS must */
    int landlock_abi;
    int join_fds[CGROUP_MAX_TREES]; /* control groups to enter; closed afterwards */
    int join_count;
    int link_fd; /* init link: SOCK_SEQPACKET to the spawner */
    int life_fd; /* life file of the spawner, for inside_follow() */
    int package_fd;
    int stdin_fd;
    int stdout_fd;
    int stderr_fd;
    int collect_fd;
    int channel_fd;                      /* becomes descriptor 3 of a session's program */
    int mount_fds[SPAWN_MAX_BOX_MOUNTS]; /* id-mapped copies of writable directories */
    int hand_fd;  /* package socket of a ready box, which brings package and stdio; else -1 */
    bool is_warm; /* forked from a zygote: there is nothing to execute */
    bool shares_memory; /* with the zygote, until INIT_PROGRAM takes over (init.h) */
    atomic_int *maps; /* in the shared memory: 1 when the zygote has mapped the ids, -1 when it
                         could not. NULL without a zygote that shares memory */
    /* CPU time of the set-up; known before the program's process goes on */
    uint64_t init_cpu_ns;
};

enum { CHANNEL_FD = 3 };

/* No process in a box gets capabilities from its user id, and this cannot be undone. */
enum {
    INSIDE_SECUREBITS = SECBIT_NOROOT | SECBIT_NOROOT_LOCKED | SECBIT_NO_SETUID_FIXUP |
                        SECBIT_NO_SETUID_FIXUP_LOCKED
};

/* Arguments and environment of the program; they lie in the mapped package. */
struct payload_words {
    char **argv;
    char **env;
};

/* Runs as pid 1 of the box. No part of a package is read before the spawner's go-ahead, one
 * byte on the init link. Returns only in the program's process of a warm box, confined and
 * ready for payload_begin(). */
void inside_run(struct inside *in);

/* Parts of the list, each in a file of its own. All int functions return 0 or negative
 * errno. */
/* mounts.c. *ret_which: the number of the shared directory that failed, from 1 on, or 0. */
int mounts_enter(const struct inside *in, uint32_t *ret_step, uint32_t *ret_which);
/* drop.c. drop_init_id(), drop_payload_id(): their uids inside the box. drop_bounding() runs
 * early, while another process maps the ids. drop_keep_over_exec(): box init keeps its
 * capabilities when it executes INIT_PROGRAM. */
unsigned drop_init_id(const struct inside *in);
unsigned drop_payload_id(const struct inside *in);
int drop_rlimits(const struct inside *in);
int drop_bounding(const struct inside *in);
int drop_to_payload(const struct inside *in);
int drop_init(bool starts_another);
int drop_watcher(void);
int drop_keep_over_exec(void);

/* payload.c. payload_enter() confines the process. Only then payload_begin() reads the package,
 * writes its files, connects stdio and reports the start; payload_exec() executes the program.
 * A warm box already has its program, which calls payload_begin() itself. All of them fail by
 * inside_fail(). */
void payload_enter(const struct inside *in);
void payload_begin(const struct inside *in, struct payload_words *ret);
/* For the program of a pool, which is executed ahead and calls payload_begin() itself later. It
 * gets only its arguments, and package socket and init link at fixed descriptors, above those
 * that it will open. */
enum { PARK_HAND_FD = 60, PARK_LINK_FD };
void payload_park(const struct inside *in, struct payload_words *ret);
/* Parts of these that terminal.c uses. */
int payload_fence(const struct inside *in);
int payload_limit_files(const struct inside *in);
int payload_read_words(int package_fd, struct payload_words *ret);
_Noreturn void payload_exec(const struct inside *in, const struct payload_words *words);
_Noreturn void collect_run(const struct inside *in); /* collect.c */

/* files_box.c. files_run() serves the files of a session on fd; files_refuse() is the answer
 * when the helper could not be forked. */
_Noreturn void files_run(const struct inside *in, int fd, uint64_t room_bytes);
void files_refuse(int fd, int error);

/* terminal.c. terminal_run() becomes the watcher of a terminal (proto/terminal.h) and forks the
 * shell, in whose process `prepare`, if any, is called after the joins. terminal_refuse()
 * reports a failure. The descriptors came with the order; the shell enters the groups in
 * `joins` first. */
struct terminal_order {
    int fd;
    int package_fd; /* package with arguments and environment of the shell */
    int joins[CGROUP_MAX_TREES];
    unsigned join_count;
};
_Noreturn void terminal_run(const struct inside *in, const struct terminal_order *order,
    int (*prepare)(const struct inside *in));
void terminal_refuse(int fd, int error);

/* Waits for the spawner's go-ahead: every limit is set, and the spawner watches the box. At the
 * end of a warm box: waits until the spawner has reported the end of the program (-EPIPE
 * then). */
int inside_wait_go(const struct inside *in);

/* Asks the kernel to kill this process when its parent, the spawner, ends. Returns 0, or -EPIPE
 * when the spawner has ended already. Every change of ids cancels the request, so it is
 * repeated after each. The init link cannot show the spawner's end: children that it forked a
 * moment ago still hold its other end. */
int inside_follow(int life_fd);

/* Makes this process one of the first that the kernel kills when the host is out of memory. The
 * payload could undo it, but its /proc is not writable. */
int inside_die_first(void);

/* Reports a failed step and ends the process. */
_Noreturn void inside_fail(const struct inside *in, uint32_t step, int error);
int inside_send(const struct inside *in, const struct link_record *record);
uint64_t inside_cpu_ns(void);

/* Closes every descriptor from 3 on except those in `keep`, which it sorts. */
int inside_close_others(int *keep, size_t count);
