/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The session struct and the functions that the files of this folder share.
 *
 * Only the holder of a session (state starting or busy) reads from its box. Other threads may
 * only send commands, and must hold the session's lock: descriptors change under that lock. */

#include "session/box.h"
#include "session/channel.h"
#include "session/files/transfer.h"
#include "session/network.h"
#include "session/session.h"
#include "state/admit.h"
#include "state/keys.h"

#include <pthread.h>
#include <stdatomic.h>

enum { SESSION_MESSAGE = 640 }; /* bytes: an error's message, and where it happened */

/* TOOL_CALLS_PENDING calls can be unanswered at one time. TOOL_ID_MAX and TOOL_INPUT_MAX are in
 * bytes. */
enum { TOOL_CALLS_PENDING = 32, TOOL_ID_MAX = 64, TOOL_INPUT_MAX = 1 << 20 };

/* Tool calls of the running exec. Protected by the session's lock. */
struct session_tools {
    bool is_catalog;                /* as in exec_spec */
    const json_t *offered;          /* borrowed from the exec_spec, NULL without tools */
    struct preview_record *preview; /* borrowed, or NULL; if set, every call is refused and
                                     * recorded */
    unsigned budget;                /* calls that are left */
    uint64_t timeout_ms;
    unsigned made;
    uint64_t paused_ms; /* since when a call waits for an approval; 0: none does */
    struct tool_call {
        char id[TOOL_ID_MAX + 1]; /* "" for an unused entry */
        uint64_t deadline_ms;
        struct approval *approval; /* the call waits for it; the caller does not know yet */
        json_t *frame;             /* of a call that waits for an approval */
        json_t *answer;            /* NULL until the caller has answered */
        size_t weight;             /* bytes of the answer, counted in the session's purse */
    } calls[TOOL_CALLS_PENDING];
};

/* The admission place of the running exec. Only the holder of the session uses it. */
struct session_place {
    struct admit_ticket ticket;
    /* EXEC_AWAY: it gave its place back while it waits for a tool */
    enum { EXEC_INSIDE, EXEC_AWAY, EXEC_RETURNING } state;
    uint64_t since_ms; /* when it began to wait for a tool or for its place */
    unsigned calls;    /* number of tool calls made at that time */
};

/* A caller that waits for its turn. Lives on the caller's stack. */
struct session_waiter {
    struct session_waiter *next;
};

struct session {
    struct sessions *all;
    struct session *next; /* in the list of all sessions */
    unsigned refs;        /* protected by the list's lock */
    char id[ID_MAX];
    char owner[KEY_NAME_MAX];
    int owner_index;
    char name[SESSION_NAME_MAX + 1];
    struct strv env;
    struct session_box_spec spec; /* its env points to `env` above */
    struct session_network *network;
    bool names_cpu;    /* the caller set limits.cpu_ms */
    bool is_plain;     /* the caller set no limit and no variable */
    int64_t created_s; /* wall clock */
    uint64_t idle_ms;
    uint64_t end_ms; /* end of its lifetime, by clock_ms() */

    pthread_mutex_t lock;
    pthread_cond_t changed;
    enum session_state state;
    const char *reason; /* why it is dead or expired: one word */
    char message[SESSION_MESSAGE];
    struct session_waiter *waiters;
    bool is_deleted;
    /* It belonged to an earlier server process and only answers that it is dead. */
    bool is_past;
    json_t *past;         /* what that process told of it, or NULL */
    bool is_over;         /* its lifetime has ended; the holder must end it */
    bool has_interpreter; /* an interpreter runs and accepts code */
    bool is_resting;      /* the box exists, but no payload runs in it */
    bool is_warm;
    struct admit_need promised;
    struct session_share *share; /* owns its memory promise once it was copied or is a copy */
    bool is_fork;
    bool has_foreign_text; /* a tool has answered its code: from then on the code may do what a
                              stranger wants */
    bool is_preview;       /* it lives for a moment and is in no list that a caller sees */
    struct preview *preview; /* the preview that is being made; only the holder uses it */
    char origin[ID_MAX];     /* id of the session that it is a copy of */
    /* Its name if it is a checkpoint, else "". A checkpoint belongs to `origin` and is in no
     * list that a caller sees. */
    char checkpoint[CHECKPOINT_NAME_MAX + 1];
    /* The checkpoint that was made or gone back to last, "" for none: the parent of the next
     * checkpoint. In a checkpoint: its parent. */
    char base[CHECKPOINT_NAME_MAX + 1];
    char rolled_back_to[CHECKPOINT_NAME_MAX + 1]; /* by the last rollback, "" for none */
    int64_t rolled_back_s;                        /* when, since 1970 */
    uint64_t charged_ns; /* CPU time of the box that its key was charged for */
    uint64_t asked_ms;   /* when the tick last asked for that CPU time */
    /* The last report of the spawner about the box; the holder writes it without the lock. */
    atomic_bool is_measured;
    atomic_ullong seen_cpu_ns;
    atomic_ullong seen_memory;
    uint64_t used_ms; /* last use, by clock_ms() */
    char *cwd;
    int64_t execution_count;
    struct session_box box;
    struct channel channel;
    int wake_fd;        /* eventfd that wakes the holder */
    struct purse purse; /* counts the memory of the channel and of tool answers */
    struct session_tools tools;
    struct session_place place;
    pthread_mutex_t cause_lock; /* of the next two; nothing else is taken under it */
    unsigned place_state;       /* enum place_state */
    char cause[PLACE_SAYS];     /* why it is not ready: fit for people */
    atomic_uint place_bits;     /* limits that its place enforces (enum place_limit) */
    atomic_uint host_access;    /* bits of enum host_access: approved for the session */
    json_t *host_exports;       /* a member for each variable that its shell exports, or NULL */
    bool host_marked;    /* its shell may have integers or references (approval/shell.h) */
    json_t *approvals;   /* of the exec that begins, or NULL */
    bool told_pids;      /* HIT_PROCESSES was reported once for this box */
    unsigned interrupts; /* requested, but not sent by the holder yet */
    unsigned transfers;  /* file transfers in progress */
    unsigned terminals;  /* open */
    int install_fd;      /* wakes the thread that installs packages when the box ends; or
                          * -1 */
    struct session_install *install; /* the installation of the running exec; only the holder
                                      * uses it */
    uint64_t uploading;              /* bytes that uploads of known size have not sent yet */
    int64_t stamp_ns;        /* newest known change of a file, by the clock that stamps files */
    struct transfer watcher; /* reports which files an exec changes; fd -1 when not open */
};

struct sessions {
    struct state *state;
    session_builder *build; /* or NULL */
    pthread_mutex_t lock;   /* take it before a session's lock */
    struct session *first;
    atomic_bool is_stopping;
    atomic_uint terminals;     /* open in all sessions */
    struct shell_cache *trees; /* of shell texts for places other than boxes (host_parse.c) */
    struct backend_seen { /* how the last session of each backend began; the lock is the list's
                           */
        bool is_tried;
        const char *kind; /* of its failure, or NULL */
        char detail[200];
        uint64_t latency_ms;
        uint32_t enforces; /* bits of enum place_limit */
        /* The result of the last probe. */
        bool is_probing;
        uint64_t probed_ms; /* 0: never */
        uint64_t probe_latency_ms;
        enum place_error probe_error;
        char probe_words[200];
    } seen[PLACES_MAX];
};

/* Memory that is promised to a session and to its copies. They share pages. Those pages stay
 * charged to the original after it has ended, so its promise lasts until the last copy is gone.
 */
struct session_share {
    atomic_uint refs;
    int owner;
    struct admit_need promised;   /* only its two memory budgets */
    struct session_share *origin; /* share of the original, or NULL */
};
void session_unshare(struct sessions *all, struct session_share *share); /* copy.c */

static inline bool session_is_hidden(const struct session *s)
{
    return s->checkpoint[0] || s->is_preview;
}

/* acquire.c: takes an idle session (with `also_dead`, also a dead one), which becomes busy.
 * With `wait`, waits for its turn. */
int session_take(struct session *s, bool wait, bool also_dead, int cancel_fd, struct err *err);

/* 0 when a caller that does not hold the session can use its box. Without `also_dead` an
 * interpreter must run too. The lock is held. */
int session_reach(struct session *s, bool also_dead, struct err *err);

/* Gives a held session back. It becomes idle when its interpreter runs, else dead. */
void session_give(struct session *s);

/* Records that the interpreter is gone, and why. The box stays. The caller holds the session.
 */
void session_lose(struct session *s, const char *reason, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Does the same for an event of the spawner. After EVENT_EXITED the box stays; any other event
 * means that the box is gone, and drops it. */
void session_note_end(struct session *s, const struct spawn_event *event);

/* Takes the next event of the box, as session_box_event() does. EVENT_NETWORK is passed on to
 * the thread that waits for it. */
int session_event(struct session *s, struct spawn_event *ret);

/* Ends the box of a held session and gives the session back as expired. `reason` is not copied
 * and must stay valid; `message` is copied. */
void session_end_held(struct session *s, const char *reason, const char *message);

/* Closes the box and gives back the memory and processes that were reserved for it. */
void session_drop_box(struct session *s);

void session_wake(struct session *s);

/* Notes an EVENT_USAGE for the status. */
void session_measure(struct session *s, const struct spawn_event *usage);

/* Charges the key for the CPU time since the last charge. `cpu_ns` is the total of the box. */
void session_charge(struct session *s, uint64_t cpu_ns);

/* Ends all processes of the box and waits for that. Drops the box when it does not answer in
 * time. The caller holds the session. */
void session_stop_interpreter(struct session *s);

/* Whether the holder must end the session at once. */
bool session_must_end(struct session *s);

/* ask.c: sends the frame `question` with `text` (or NULL) to the interpreter of a held session.
 * The answer must be a frame of kind `answer` whose JSON is valid. The caller owns *ret.
 * session_asked() ends a question, or several: after a failure it ends the interpreter, and it
 * gives the session back in any case. */
int session_ask(struct session *s, const char *question, const char *text,
    enum channel_kind answer, bool (*is_valid)(const json_t *), json_t **ret);
int session_asked(struct session *s, int asked, struct err *err);

/* packages.c: mounts the layers of an image, which it takes, in the box of a held session. */
int session_join(struct session *s, struct run_image *image, struct err *err);

/* Tells the interpreter that packages have come. The caller holds the session. */
void session_tell_packages(struct session *s);

/* evict.c: reserves the need of a box of this session; ERR_BUSY when there is no room. It may
 * end idle sessions of other keys. */
int session_reserve(struct session *s, struct admit_need *ret, struct err *err);

/* Throws away the output of background processes between execs. Each call drains a limited
 * number of bytes: a quiet process never blocks on a full pipe, a noisy one has to wait. */
void session_discard_output(const struct session *s);

/* start.c: session_enlist() puts a new session into the list. session_wait_ready() waits until
 * its interpreter is ready. */
void session_enlist(struct sessions *all, struct session *s);
int session_wait_ready(struct session *s, int cancel_fd, struct err *err);

/* copy.c: copies a held session. With a name the copy is a checkpoint of it, with "" a session
 * of its own. The caller owns a reference. */
int session_copy(struct session *s, const char *checkpoint, int cancel_fd, struct session **ret,
    struct err *err);

/* Its parts. session_copy_new() makes a listed session in state starting, with its promise of
 * memory, but no box. session_copy_start() answers an interpreter that has agreed to fork: with
 * the descriptors of the copy, or, after an error, with a no. session_copy_drop() ends a copy
 * that is held. */
int session_copy_new(struct session *s, const char *checkpoint, bool is_preview,
    struct session **ret, struct err *err);
int session_copy_start(struct session *s, struct session *copy, struct err *err);
void session_copy_drop(struct session *copy);

/* copy_files.c: a new session with copies of the files. *ret_is_whole becomes false when files
 * were left out. */
int session_copy_fresh(struct session *s, int cancel_fd, struct session **ret,
    bool *ret_is_whole, struct err *err);

/* 0, or ERR_UNSUPPORTED when the memory of this language's sessions cannot be copied. */
int session_can_fork(const struct session *s, struct err *err);

/* checkpoint.c: deletes the checkpoints of a session that has ended. */
void session_drop_checkpoints(struct session *s);

/* Makes a session that is not listed yet, with two references: the list's and the caller's.
 * Takes spec->env. */
struct session *session_new(struct sessions *all, struct session_spec *spec, int owner);

/* remembered.c: records that outlive the server process. session_recall() makes a dead session
 * from the stored record of an earlier server process. The caller lists it. session_tell_past()
 * adds what the record says of its place and its limits. */
void session_tell_past(const struct session *s, json_t *json);
void session_remember(struct session *s);
void session_forget(struct session *s);
struct session *session_recall(struct sessions *all, const char *id, int owner);

/* Removes the session from the list. The list's lock is held. */
void session_unlist(struct sessions *all, struct session *s);

/* Stores the member `cwd` of a frame. */
void session_set_cwd(struct session *s, const json_t *frame);

/* Updates the state from the box: whether the interpreter of an idle session still lives, and
 * whether a dead session still has its box. The lock is held. */
void session_refresh(struct session *s);

/* How long to wait for work of the interpreter that takes at most `ms` with a whole core. A
 * session with `cpus: 0.05` needs twenty times as long. */
uint64_t session_patience_ms(const struct session *s, uint64_t ms);

/* Sleeps for a short time or until the session changes. The lock is held. Returns false when
 * cancel_fd is readable. */
bool session_nap(struct session *s, int cancel_fd);
