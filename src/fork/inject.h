/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* System calls made in the name of another process, by ptrace. The process runs nothing but the
 * instruction `syscall` meanwhile, and its filter is suspended. Each call is compared with what
 * the kernel is about to do before it does it, so its result is known, not told. Who traces is
 * a short-lived process with an alarm; when it ends without inject_detach(), the other dies.
 *
 * All functions return 0 or negative errno; -ENOSYS on machines other than x86-64. */

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct tracee {
    pid_t pid;
    uint64_t scratch;       /* room in its memory, below its stack */
    uint64_t registers[32]; /* as they were */
};

enum { INJECT_SCRATCH = 256 };

/* Stops the process behind the pidfd, whose number is pid, in the system call it waits in. From
 * then on that number is nobody else's: who is traced is not reaped before we are gone. */
int inject_attach(struct tracee *t, pid_t pid, int pidfd);

/* Puts bytes at scratch + offset. */
int inject_write(const struct tracee *t, size_t offset, const void *data, size_t size);

/* Returns what the call did; -EPROTO when another one was about to be made. */
long inject_call(const struct tracee *t, long number, uint64_t a, uint64_t b, uint64_t c,
    uint64_t d, uint64_t e);

/* Lets it go on where it was. */
int inject_detach(const struct tracee *t);
