/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What core/session*.c know about a session.
 *
 * Who holds a session (state starting or busy) alone reads from its box; others only send it
 * commands, and only with the lock held, under which the descriptors change. */

#include "session/box.h"
#include "session/channel.h"
#include "session/session.h"
#include "session/transfer.h"
#include "state/admit.h"
#include "state/keys.h"

#include <pthread.h>
#include <stdatomic.h>

enum { TOOL_CALLS_PENDING = 32, TOOL_ID_MAX = 64, TOOL_INPUT_MAX = 1 << 20 };

/* Calls of tools by the exec under way; with the session's lock. */
struct session_tools {
    const json_t *offered; /* borrowed from the exec_spec, NULL without tools */
    unsigned budget;       /* calls left */
    uint64_t timeout_ms;
    unsigned made;
    struct tool_call {
        char id[TOOL_ID_MAX + 1]; /* "" for a free place */
        uint64_t deadline_ms;
        json_t *answer; /* NULL until it is there */
        size_t weight;  /* of the answer, counted */
    } calls[TOOL_CALLS_PENDING];
};

/* The place of the exec under way; of the caller that holds the session. */
struct session_place {
    struct admit_ticket ticket;
    enum { EXEC_INSIDE, EXEC_AWAY, EXEC_RETURNING } state; /* away: it waits for a tool */
    uint64_t since_ms; /* when it began to wait for a tool, or for the place */
    unsigned calls;    /* of tools, at that time */
};

/* Somebody who waits for a turn; on its own stack. */
struct session_waiter {
    struct session_waiter *next;
};

struct session {
    struct sessions *all;
    struct session *next; /* in the list of all */
    unsigned refs;        /* with the list's lock */
    char id[ID_MAX];
    char owner[KEY_NAME_MAX];
    int owner_index;
    char name[SESSION_NAME_MAX + 1];
    struct strv env;
    struct session_box_spec spec; /* env is the one above */
    bool names_cpu;               /* limits.cpu_ms was asked for */
    bool is_plain;                /* no limit and no variable was asked for */
    int64_t created_s;            /* wall clock */
    uint64_t idle_ms;
    uint64_t end_ms; /* of its lifetime, by clock_ms() */

    pthread_mutex_t lock;
    pthread_cond_t changed;
    enum session_state state;
    const char *reason; /* of dead and expired ones: one word */
    char message[200];
    struct session_waiter *waiters;
    bool is_deleted;
    bool is_past;    /* of a server before this one: nothing can be done with it */
    bool is_over;    /* to be ended by whoever holds it: its lifetime is over */
    bool has_kernel; /* an interpreter that can be given code */
    bool is_resting; /* the box is there without any program */
    bool is_warm;
    struct admit_need promised;
    struct session_share *share; /* its promise, when it was forked or is a fork */
    bool is_fork;
    char origin[ID_MAX];                      /* what a fork was copied from */
    char checkpoint[CHECKPOINT_NAME_MAX + 1]; /* its name as one: nobody's session, but kept for
                                                 origin; else "" */
    uint64_t charged_ns; /* CPU time of the box that its key has paid for */
    uint64_t asked_ms;   /* when the tick asked for it last */
    uint64_t used_ms;    /* last use, by clock_ms() */
    char *cwd;
    int64_t execution_count;
    struct session_box box;
    struct channel channel;
    int wake_fd;        /* an eventfd for whoever holds it */
    struct purse purse; /* what the channel and answers of tools take */
    struct session_tools tools;
    struct session_place place;
    bool told_pids;
    unsigned interrupts;     /* asked for, and not yet sent by whoever holds it */
    unsigned transfers;      /* of files, going on */
    unsigned terminals;      /* open */
    uint64_t uploading;      /* bytes that uploads of known length have not sent yet */
    int64_t stamp_ns;        /* of the last change that is known of, by the clock of files */
    struct transfer watcher; /* tells what execs change; fd -1 without */
};

struct sessions {
    struct state *state;
    pthread_mutex_t lock; /* before a session's own */
    struct session *first;
    atomic_bool is_stopping;
    atomic_uint terminals; /* of all sessions */
};

/* Memory that is promised to a session and the copies of it: they share pages, which stay
 * charged to it when it is gone, so its promise lasts as long as they do. */
struct session_share {
    atomic_uint refs;
    int owner;
    struct admit_need promised;   /* the memory */
    struct session_share *origin; /* or NULL */
};
void session_unshare(struct sessions *all, struct session_share *share); /* session_fork.c */

/* session_turn.c: takes an idle (with `also_dead`: or dead) session; it is busy then. */
int session_take(struct session *s, bool wait, bool also_dead, int cancel_fd, struct err *err);

/* Whether something beside its turn can reach the box of the session: with `also_dead` the box
 * alone, else an interpreter too. The lock is held. */
int session_reach(struct session *s, bool also_dead, struct err *err);

/* Gives it back: idle while it has a kernel, else dead. */
void session_give(struct session *s);

/* The interpreter is gone, for this reason; its box stays. Held by the caller. */
void session_lose(struct session *s, const char *reason, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* The same by the spawner's word, EVENT_EXITED or EVENT_ENDED; any other: the box is lost. */
void session_note_end(struct session *s, const struct spawn_event *event);

/* Ends the box of a session that the caller holds and gives the session back, expired. The
 * reason and the message are kept, not copied. */
void session_end_held(struct session *s, const char *reason, const char *message);

/* So is the box; nothing of it is promised any more. */
void session_drop_box(struct session *s);

void session_wake(struct session *s);

/* Charges the key for what the box used since the last time: this is all it has used. */
void session_charge(struct session *s, uint64_t cpu_ns);

/* Ends every process of the box and waits for that; the box is dropped when it does not go as
 * it should. The session is held. */
void session_stop_kernel(struct session *s);

/* Whether a held session is to be ended at once. */
bool session_must_end(struct session *s);

/* session_frames.c: takes what the kernel says during one exec. */
struct exec_frames {
    struct session *s;
    const struct exec_watch *watch;
    struct exec_result *result;
    size_t display_bytes;
    bool is_counted; /* the value that is looked at may be kept, */
    bool is_kept;    /* and is */
    bool is_done;    /* the kernel said so */
};
int frames_take(struct exec_frames *f, const struct channel_frame *frame);

/* session_tools.c: all but tools_begin() and tools_end() with the session's lock. */
void tools_begin(struct session *s, const struct exec_spec *spec);
void tools_end(struct session *s);
/* A tool_call frame of so many bytes: queues a refusal on the channel, or takes the call down
 * for the caller to be asked. -EBADMSG when the frame is rubbish. */
int tools_call(struct session *s, json_t *frame, size_t bytes, bool *ret_is_asked);
/* Passes answers on to the kernel, and refusals of calls that took too long. */
int tools_pass(struct session *s);
/* Whether it would pass something on now. */
bool tools_have_news(const struct session *s);
/* When the next call is late, by clock_ms(); UINT64_MAX for never. */
uint64_t tools_deadline_ms(const struct session *s);

/* session_place.c: the place of an exec. The session is held. place_tend() passes on what tools
 * answered and gives the place back while they do not; it returns when to call it again, and
 * puts a deadline off by the time that the exec waited for its place. */
int place_take(struct session *s, int cancel_fd, unsigned *ret_retry_s, struct err *err);
void place_leave(struct session *s);
uint64_t place_tend(struct session *s, bool is_stopping, uint64_t *deadline_ms);
bool place_is_returning(const struct session *s);
int place_fd(const struct session *s); /* readable when place_tend() is to be called, or -1 */

/* session_evict.c: what a box of this session needs, or ERR_BUSY. Idle sessions of other keys
 * may end for it. */
int session_reserve(
    struct session *s, struct admit_need *ret, unsigned *ret_retry_s, struct err *err);

/* What background processes print while nobody runs anything is thrown away, at a pace that
 * keeps a quiet one from stopping and makes a noisy one wait. */
void session_discard_output(const struct session *s);

/* session_start.c: lists a new session; waits until its kernel is ready. */
void session_enlist(struct sessions *all, struct session *s);
int session_wait_ready(struct session *s, int cancel_fd, struct err *err);

/* session_fork.c: a copy of a session that the caller holds, under a name as its checkpoint or
 * with "" as a session of its own. The caller owns a reference. */
int session_copy(struct session *s, const char *checkpoint, int cancel_fd, struct session **ret,
    unsigned *ret_retry_s, struct err *err);

/* session_fork_files.c: a fresh session with the same files; *ret_is_whole becomes false when
 * some are left out. */
int session_copy_fresh(struct session *s, int cancel_fd, struct session **ret,
    bool *ret_is_whole, unsigned *ret_retry_s, struct err *err);

/* 0, or ERR_UNSUPPORTED. */
int session_can_fork(const struct session *s, struct err *err);

/* session_checkpoint.c: ends those of a session that is gone. */
void session_drop_checkpoints(struct session *s);

/* A session that is not listed; the references of list and caller. Takes the spec's env. */
struct session *session_new(struct sessions *all, struct session_spec *spec, int owner);

/* session_recall.c: what outlives the server. session_recall() makes a dead session, listed by
 * the caller, of one that a server before this one had. */
void session_remember(struct session *s);
void session_forget(struct session *s);
struct session *session_recall(struct sessions *all, const char *id, int owner);

/* Takes it out of the list, whose lock is held. */
void session_unlist(struct sessions *all, struct session *s);

/* Notes the member `cwd` of a frame. */
void session_set_cwd(struct session *s, const json_t *frame);

/* Looks whether an idle session is still alive, or a dead one still has its box. The lock is
 * held. */
void session_refresh(struct session *s);

/* A short sleep until something changes; the lock is held. False when cancel_fd is readable. */
bool session_nap(struct session *s, int cancel_fd);
