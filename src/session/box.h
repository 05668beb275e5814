/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The server's side of a session's box: the control descriptors, the output pipes and the
 * channel. It only opens, restarts, copies and closes boxes; what a session does with its box
 * is in the other files of this folder. */

#include "base/err.h"
#include "run/engine.h"
#include "session/session.h"

struct session_box_spec {
    const struct runtime *runtime;
    const struct strv *env; /* the caller's variables; the runtime adds its own */
    uint32_t owner;         /* key number for spawn/shares.h; a copy has its original's */
    struct run_limits limits;
    struct run_mount mounts[SESSION_MOUNTS_MAX];
    size_t mount_count;
    const struct run_files
        *trust;              /* authorities for secrets, written into a new box; or NULL */
    struct run_image *image; /* or NULL */
    const struct place_row *place; /* the place of the session; NULL: a box */
    uint32_t place_number;
    struct place_head place_request;
    int places_fd; /* to hermes-places */
};

/* All descriptors are -1 while the session has no box. All are non-blocking. */
struct session_box {
    /* Carries spawn_command and spawn_event; end of file means that the box is gone. */
    int socket;
    int out_fd;
    int err_fd;
    int channel_fd;
    struct image_root *image; /* its root, if it has an image; else NULL */
};

void session_box_init(struct session_box *box);

/* Asks the spawner for a box. EVENT_STARTED or EVENT_FAILED follows on box->socket. network_fd
 * is the end of a network channel that the caller keeps, or -1. */
int session_box_open(struct engine *engine, const struct session_box_spec *spec, int network_fd,
    struct session_box *box, struct err *err);

/* Starts a new payload in a box whose payload has ended (EVENT_EXITED). The payload gets new
 * pipes and a new channel. */
int session_box_restart(struct engine *engine, const struct session_box_spec *spec,
    struct session_box *box, struct err *err);

/* Asks the spawner to make a box that becomes a copy of `original`. The interpreter of the
 * original needs four descriptors for its copy: stdout, stderr, channel and hello.
 * session_box_fork() fills in the first three; a copy that is_alone shares no network with its
 * original. session_box_hello() waits for the spawner's
 * answer: EVENT_FORKING comes with the fourth, EVENT_FAILED without. */
enum { SESSION_FORK_FDS = 4 };
int session_box_fork(const struct session_box *original, bool is_alone, struct session_box *box,
    int ret_fds[SESSION_FORK_FDS], struct err *err);
int session_box_hello(
    const struct session_box *box, int wait_ms, struct spawn_event *ret, int *ret_fd);

/* Sends a command that carries no descriptors (enum spawn_command_kind). Errors are ignored:
 * the end of the box shows on its socket. */
void session_box_command(const struct session_box *box, uint32_t kind);

/* Sends COMMAND_USAGE. The spawner then counts the box as idle or busy (spawn/shares.h). Every
 * other command makes the box busy. */
void session_box_ask_usage(const struct session_box *box, bool is_idle);

/* Takes the next event: 1 with *ret, 0 when none is there now, -EPIPE when the box is gone. */
int session_box_event(const struct session_box *box, struct spawn_event *ret);

/* Closes all descriptors. The spawner then kills everything in the box. */
void session_box_close(struct session_box *box);
