/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* System calls made in the name of another process, by ptrace. Each call is compared at its
 * entry with what the kernel is about to do, so we know what was done and need not believe the
 * process. Meanwhile the process executes nothing but one instruction `syscall` per call. Its
 * filter is suspended only while the kernel makes a call that is marked so; inject.c says why
 * that holds. The tracer is a short-lived process with an alarm. If it ends without
 * inject_detach(), the traced process dies.
 *
 * The order is attach, ready, calls, detach. After a failure of inject_call() other than the
 * call's own the process is lost: no function goes on with it, and it dies with the tracer.
 *
 * All functions return 0 or negative errno; -ENOSYS on machines other than x86-64. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum tracee_state {
    TRACEE_NONE,
    TRACEE_HELD,  /* stopped in its own system call */
    TRACEE_READY, /* can make calls for hermes-fork */
    TRACEE_LOST,
};

struct tracee {
    pid_t pid;
    enum tracee_state state;
    uint64_t site;          /* address of the instruction `syscall` that it executes for us */
    uint64_t scratch;       /* address of room in its memory, below its stack */
    uint64_t rseq;          /* address of its restartable-sequences area, or 0 */
    uint64_t signals;       /* its signal mask before inject_ready() */
    uint64_t registers[32]; /* its registers at inject_attach() */
};

enum { INJECT_SCRATCH = 64, INJECT_ARGS = 3 };

struct inject_call {
    long number;
    uint64_t args[INJECT_ARGS];
    const void *data; /* written to `scratch` before the kernel reads it */
    size_t size;
    bool is_unfiltered; /* suspend the filter, which would refuse the call */
};

/* Stops the process behind the pidfd, whose number is pid, in the read() in which it waits.
 * Until then it runs normally. From then on its pid cannot become another process's: a traced
 * process is not reaped before the tracer is gone. */
int inject_attach(struct tracee *t, pid_t pid, int pidfd);

/* Checks whether calls can be made as inject.c demands; proc_fd is its /proc/PID. The caller
 * has made sure that the process has one thread and shares its memory with no other, and that
 * no process runs that could signal it. */
int inject_ready(struct tracee *t, int proc_fd);

/* Returns the result of the call; -EPROTO when the process was about to make another one. */
long inject_call(struct tracee *t, const struct inject_call *call);

/* Restores the process and lets it go on in its read(). */
int inject_detach(struct tracee *t);
