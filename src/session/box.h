/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The live box of a session, seen from the server: its socket at the spawner, what its program
 * prints, and the channel to the kernel. */

#include "base/err.h"
#include "run/engine.h"

struct session_box_spec {
    const struct runtime *runtime;
    const struct strv *env; /* asked for, beside the runtime's own */
    uint32_t owner;         /* spawn/shares.h; copies have their original's */
    struct run_limits limits;
};

/* All -1 without a box. None of them blocks. */
struct session_box {
    int socket; /* its end is the end of the box */
    int out_fd;
    int err_fd;
    int channel_fd;
};

void session_box_init(struct session_box *box);

/* Asks for a box; EVENT_STARTED or EVENT_FAILED follows on the socket. */
int session_box_open(struct engine *engine, const struct session_box_spec *spec,
    struct session_box *box, struct err *err);

/* Gives a box whose program has ended (EVENT_EXITED) another one, with pipes and a channel of
 * its own. */
int session_box_restart(struct engine *engine, const struct session_box_spec *spec,
    struct session_box *box, struct err *err);

/* Asks for a box that becomes a copy of another. The spawner answers on its socket, by
 * EVENT_FORKING with the last of the descriptors (stdout, stderr, channel, hello) that the
 * original's kernel needs for the copy, or EVENT_FAILED. */
enum { SESSION_FORK_FDS = 4 };
int session_box_fork(const struct session_box *original, struct session_box *box,
    int ret_fds[SESSION_FORK_FDS], struct err *err);
int session_box_hello(
    const struct session_box *box, int wait_ms, struct spawn_event *ret, int *ret_fd);

/* enum spawn_command_kind, without descriptors. */
void session_box_command(const struct session_box *box, uint32_t kind);

/* COMMAND_USAGE, after which the box is busy or idle (spawn/shares.h). Any other command makes
 * it busy. */
void session_box_ask_usage(const struct session_box *box, bool is_idle);

/* The next event: 1, 0 when there is none now, -EPIPE when there will be none. */
int session_box_event(const struct session_box *box, struct spawn_event *ret);

/* Has everything in the box killed. */
void session_box_close(struct session_box *box);
