/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The kinds of boxes and the states of a box, seen from the spawner. docs/architecture.md shows
 * both. */

#include "proto/spawn.h"

#include <stdbool.h>

struct spawner;
struct box;

/* The life of a box. Each state leads only to later ones, except that a session that has no
 * program gets another one. box_enter() makes every change but the last, to STATE_FREE, which
 * is that of box_release(). */
enum box_state {
    STATE_FREE,     /* no box has this place */
    STATE_PARKED,   /* made ahead: a ready box whose program may still be starting */
    STATE_READY,    /* made ahead: its program waits for a package */
    STATE_STARTING, /* made for a request, or has its package; its program has not begun */
    STATE_RUNNING,
    STATE_RESTING, /* a session whose program has ended */
    STATE_ENDING,  /* the program of a run has ended, or the box has failed */
    STATE_TOLD,    /* the end was reported; only the cleaning up is left */
    STATE_DESERTED /* box init is gone; copies are left, which need this entry */
};

/* The rows of box_kinds[]. */
enum box_kind_name {
    KIND_COLD,           /* a run */
    KIND_ZYGOTE,         /* a run, cloned by a zygote */
    KIND_POOL,           /* a run, its program started ahead in a box of a pool */
    KIND_SESSION,        /* a session */
    KIND_ZYGOTE_SESSION, /* a session, cloned by a zygote */
    KIND_COPY,           /* a session, copied from another one (copy.h) */
    KIND_COPY_RUN,       /* a run, copied from a template box: box init reports its end */
};

/* How boxes of a kind are made ahead. */
struct box_ahead {
    /* Whether the ready box can serve the request. */
    bool (*fits)(
        const struct spawner *s, const struct box *box, const struct spawn_box *request);
    /* The box is given its package: its usage counts from here. */
    void (*note_base)(struct spawner *s, struct box *box);
    /* The ready box is about to change: to STATE_READY, to STATE_STARTING when it is taken, or
     * to a later state when it is lost. */
    void (*on_change)(struct spawner *s, const struct box *box, enum box_state to);
};

extern const struct box_ahead zygote_ahead, pool_ahead;

/* The differences between the kinds of boxes. */
struct box_kind {
    bool is_session; /* outlives its program, takes more commands, does not count as running */
    const struct box_ahead *ahead; /* NULL: not made ahead, and never warm (STARTED_WARM) */

    /* Makes box init, or asks the zygote for it. `fds` are those of the request, or NULL for a
     * ready box. *ret_step names the step that fails. NULL for a copy: fork_begin(). */
    int (*make)(struct spawner *s, struct box *box, const struct spawn_box *request,
        const int *fds, unsigned fd_count, int link_fd, uint32_t *ret_step);

    /* Follows a command to a session whose program has begun. False when it makes no sense. */
    bool (*obey)(struct spawner *s, struct box *box, const struct spawn_command *command,
        const int *fds, unsigned fd_count);

    /* The init link is readable; the process behind the pidfd has ended. */
    void (*on_link)(struct spawner *s, struct box *box);
    void (*on_end)(struct spawner *s, struct box *box);
};

extern const struct box_kind box_kinds[];

/* The kind of a box for a request with these flags; zygote -1: the spawner makes it. */
enum box_kind_name box_kind_for(uint32_t flags, int zygote);

/* Moves a box to a state. A state that the box is past changes nothing. */
void box_enter(struct spawner *s, struct box *box, enum box_state state);

/* Notes why a box fails. */
void box_note_failure(struct spawner *s, struct box *box, uint32_t step, int error);
