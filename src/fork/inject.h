/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* System calls made in the name of another process, by ptrace. Each call is compared at its
 * entry with what the kernel is about to do, so its result is known, not told. The process
 * executes nothing but one instruction `syscall` per call meanwhile, and its filter is
 * suspended only while the kernel makes a call that says so; inject.c says why that holds. The
 * tracer is a short-lived process with an alarm; when it ends without inject_detach(), the
 * other dies.
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
    TRACEE_READY, /* for a call of ours */
    TRACEE_LOST,
};

struct tracee {
    pid_t pid;
    enum tracee_state state;
    uint64_t site;          /* of the instruction `syscall` that it executes for us */
    uint64_t scratch;       /* room in its memory, below its stack */
    uint64_t rseq;          /* its restartable-sequences area, or 0 */
    uint64_t signals;       /* blocked ones, as they were */
    uint64_t registers[32]; /* as they were */
};

enum { INJECT_SCRATCH = 64, INJECT_ARGS = 3 };

struct inject_call {
    long number;
    uint64_t args[INJECT_ARGS];
    const void *data; /* what it is to find at scratch */
    size_t size;
    bool is_unfiltered; /* its filter would refuse it */
};

/* Stops the process behind the pidfd, whose number is pid, in the read() it waits in. Until
 * then it runs as it always does. From then on that number is nobody else's: a traced process
 * is not reaped before the tracer is gone. */
int inject_attach(struct tracee *t, pid_t pid, int pidfd);

/* Finds out whether calls can be made as inject.c demands; proc_fd is its /proc/PID. The caller
 * has seen to it that it has one thread, shares its memory with nobody, and that no process
 * runs that could signal it. */
int inject_ready(struct tracee *t, int proc_fd);

/* Returns what the call did; -EPROTO when another one was about to be made. */
long inject_call(struct tracee *t, const struct inject_call *call);

/* Lets it go on where it was. */
int inject_detach(struct tracee *t);
