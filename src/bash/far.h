/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The far shell: an interpreter of a bash session at the other end of a byte stream, in a place
 * other than a box of Hermes (docs/internals/far-shell.md). It starts the kernel, which speaks
 * to it as it speaks to a server, and carries its channel, its output and its files as frames
 * of one stream. One thread, one poll(); neither the kernel nor a file helper runs in it. */

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "bash/frame.h"
#include "bash/link.h"

/* FAR_LAST_FD: the end of all descriptors for close_range. gVisor refuses a larger number. */
enum { FAR_HELPERS = 8, FAR_LAST_FD = INT_MAX };

struct far {
    struct link link;
    const char *bash;
    bool is_fresh; /* each command has a new bash */
    int signals;   /* signalfd of SIGCHLD */
    uint64_t grace_ms;
    const char *socket_path; /* removed at the end; NULL for a fixed stream */
    char root[4096];         /* directory of the session's files */
    struct buf variables;    /* of the session: NAME=VALUE, each ended by a NUL */
    /* The kernel. Descriptors are -1 while there is none. */
    pid_t kernel;
    int channel, out, err;
    uint64_t kill_at_ms; /* when it is killed because it did not end; 0: not set */
    struct buf from_kernel, to_kernel;
    /* A frame `done` waits until out_due and err_due bytes of the pipes have been sent. */
    bool holds_done;
    size_t out_due, err_due;
    struct far_helper {
        uint32_t id; /* 0: unused */
        int fd;
        struct buf to;
    } helpers[FAR_HELPERS];
};

/* Serves the stream until it ends. far->link is connected, or listens. */
_Noreturn void far_run(struct far *far);

/* Sets the session's variables in this process, a new one. */
void far_set_variables(const struct far *far);

/* far_terminal.c: a terminal with a shell; `fd` leads to the other end. */
_Noreturn void far_terminal(const struct far *far, int fd);

/* far_files.c. on_frame: a frame `file`, `file_open`, `terminal_open` or `file_close`;
 * false for any other. */
bool far_files_on_frame(struct far *far, const struct frame *f);
void far_files_read(struct far *far, struct far_helper *h);
void far_files_write(struct far *far, struct far_helper *h);
bool far_files_are_full(const struct far *far);

/* stay.c. The path of the socket is `path`; the process goes on in the background as the far
 * shell, and this one returns 0. */
int stay_start(const char *path, uint64_t grace_ms, const char *bash);

/* Joins stdin and stdout to the far shell at `path`. Returns the exit status. */
int stay_attach(const char *path, const char *nonce);
