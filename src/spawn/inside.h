/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The inside of a box, from clone to exec. inside_run() is an ordered list of steps; any that
 * fails ends the box before the payload exists. The same list serves every way a box starts. */

#include "spawn/cgroup.h"
#include "spawn/protocol.h"

#include <linux/securebits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* All a box is born with. Descriptors are the box's ends only; -1 where absent. */
struct inside {
    const struct spawn_box *box;
    const char *exec_path;
    bool unique_ids;  /* init and payload have different ids */
    bool has_network; /* a network namespace with loopback, made ahead */
    bool has_memory;  /* a memory cgroup holds the limit; else RLIMIT_AS must */
    int landlock_abi;
    int join_fds[CGROUP_MAX_TREES]; /* control groups to enter; closed then */
    int join_count;
    int link_fd; /* SOCK_SEQPACKET to the spawner */
    int life_fd; /* of the spawner, for inside_follow() */
    int job_fd;
    int stdin_fd;
    int stdout_fd;
    int stderr_fd;
    int collect_fd;
    int channel_fd;                      /* becomes descriptor 3 of a session's program */
    int mount_fds[SPAWN_MAX_BOX_MOUNTS]; /* id-mapped copies of writable directories */
    int hand_fd;        /* a box without a job yet gets job and stdio from here */
    bool is_warm;       /* forked from a zygote: there is nothing to execute */
    bool shares_memory; /* with the zygote, until init.h's program takes over */
    atomic_int *maps;   /* there: 1 when it has mapped the ids, -1 when it could not; or NULL */
    uint64_t init_cpu_ns; /* used by the set-up; filled in before the program's process forks */
};

enum { CHANNEL_FD = 3 };

/* Nobody in a box gets a right by his id, and that is for good. */
enum {
    INSIDE_SECUREBITS = SECBIT_NOROOT | SECBIT_NOROOT_LOCKED | SECBIT_NO_SETUID_FIXUP |
                        SECBIT_NO_SETUID_FIXUP_LOCKED
};

/* Arguments and environment of the program; they lie in the mapped job. */
struct payload_words {
    char **argv;
    char **env;
};

/* What the box tells the spawner on the link; the payload cannot, its copy closes at exec. */
enum link_kind {
    LINK_FAILED = 1,
    LINK_START,
    LINK_EXIT,
    LINK_PARKING, /* a program that will wait for its job is about to be executed */
    LINK_READY,   /* it waits */
    LINK_INTERRUPTED,
    LINK_KNOWN, /* of a fork: the process is what it should be, and in its own group */
};

struct link_record {
    uint32_t kind;
    uint32_t step;      /* LINK_FAILED */
    int32_t error;      /* LINK_FAILED: negative errno */
    int32_t status;     /* LINK_EXIT: wait status of the payload; LINK_FAILED in STEP_MOUNT: the
                           number of the shared directory, from 1 on, or 0 */
    uint32_t disk_full; /* LINK_EXIT */
    uint32_t is_empty;  /* LINK_EXIT: nothing but init is left in the box */
    uint64_t ns;        /* CLOCK_MONOTONIC */
    uint64_t cpu_ns;    /* LINK_START: used by the set-up; LINK_EXIT: of the reaped children */
    uint64_t rss_bytes; /* LINK_EXIT: largest of the reaped children */
};

/* What the spawner tells the init of a session, with descriptors: those of COMMAND_RESTART, or
 * a socket for a helper that serves files (files.h), or those of a terminal (terminal.h). */
enum link_order_kind {
    ORDER_RESTART = 1,
    ORDER_FILES,    /* with its socket, and control groups for the helper to enter */
    ORDER_JOIN,     /* with control groups to move to: the program has forks */
    ORDER_TERMINAL, /* with its socket, its job, and control groups for it to enter */
};

struct link_order {
    uint32_t kind;
    uint32_t reserved;
    uint64_t room_bytes; /* ORDER_FILES: memory that the box may still use */
};

/* Runs as pid 1 of the box. Nothing of a job happens before it has read one byte from the link,
 * the go-ahead. Returns only in the program's process of a warm box, confined and ready for
 * payload_begin(). */
void inside_run(struct inside *in);

/* Parts of the list, each in its own file. All return 0 or negative errno. */
/* mounts.c; *ret_which: the shared directory that failed, from 1 on, or 0. */
int mounts_enter(const struct inside *in, uint32_t *ret_step, uint32_t *ret_which);
unsigned drop_payload_id(const struct inside *in); /* inside the box */
int drop_rlimits(const struct inside *in);         /* drop.c */
int drop_bounding(const struct inside *in);        /* early, while the ids are being mapped */
int drop_to_payload(const struct inside *in);
int drop_init(bool starts_another);
int drop_watcher(void);
int drop_keep_over_exec(void); /* has init keep what it needs when it becomes INIT_PROGRAM */

/* payload.c: confines the process; then, and only then, reads the job, writes its files,
 * connects stdio and tells that the program starts; at last executes it. A warm box already has
 * its program, which calls payload_begin() itself. Both fail by inside_fail(). */
void payload_enter(const struct inside *in);
void payload_begin(const struct inside *in, struct payload_words *ret);
/* For a program that is executed ahead and will call payload_begin() itself: no more than its
 * arguments, and the way to its job at fixed descriptors, past those it will open. */
enum { PARK_HAND_FD = 60, PARK_LINK_FD };
void payload_park(const struct inside *in, struct payload_words *ret);
/* Parts of these for terminal.c. */
int payload_fence(const struct inside *in);
int payload_limit_files(const struct inside *in);
int payload_read_words(int job_fd, struct payload_words *ret);
_Noreturn void payload_exec(const struct inside *in, const struct payload_words *words);
_Noreturn void collect_run(const struct inside *in); /* collect.c */

/* files.c: serves files of a session on fd; and, when it could not be forked, the answer. */
_Noreturn void files_run(const struct inside *in, int fd, uint64_t room_bytes);
void files_refuse(int fd, int error);

/* terminal.c: becomes the watcher of a terminal (terminal.h) and starts its shell, in whose
 * process `prepare`, if any, is called before all else; and, when that cannot be, the answer.
 * The descriptors came with the order; the groups are those that the shell enters first. */
struct terminal_order {
    int fd;
    int job_fd; /* arguments and environment of the shell */
    int joins[CGROUP_MAX_TREES];
    unsigned join_count;
};
_Noreturn void terminal_run(const struct inside *in, const struct terminal_order *order,
    int (*prepare)(const struct inside *in));
void terminal_refuse(int fd, int error);

/* Waits for the spawner's go-ahead: every limit stands, and somebody watches. At the end of a
 * warm box: until the spawner has passed the end of the program on (-EPIPE then). */
int inside_wait_go(const struct inside *in);

/* Has the kernel kill this process when its parent, the spawner, ends: 0, or -EPIPE when that
 * has ended already. Every change of ids takes the wish back, so it is asked for again after
 * each. The link cannot tell: children of the spawner that were born a moment ago still have
 * its other end. */
int inside_follow(int life_fd);

/* First to go when the host runs out of memory. A program could undo it if it could write to
 * its /proc. */
int inside_die_first(void);

/* Reports a failed step and ends the process. */
_Noreturn void inside_fail(const struct inside *in, uint32_t step, int error);
int inside_send(const struct inside *in, const struct link_record *record);
uint64_t inside_cpu_ns(void);

/* Closes every descriptor from 3 on but these, which it sorts. */
int inside_close_others(int *keep, size_t count);
