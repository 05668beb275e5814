/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* One exec, for the files of this folder: the exec itself, and its parts that last as long as
 * it does. */

#include "session/exec/overflow.h"
#include "session/internal.h"

enum { EXEC_CHUNK = 64 << 10 }; /* bytes per read */

/* frames.c: handles the frames that the interpreter sends during one exec. */
struct exec_frames {
    struct session *s;
    const struct exec_watch *watch;
    struct exec_result *result;
    size_t display_bytes;
    bool is_counted; /* there is memory to keep the current frame's value */
    bool is_kept;    /* the current frame's value was kept */
    bool is_done;    /* the frame `done` has come */
};
int frames_take(struct exec_frames *f, const struct channel_frame *frame);

/* Passes on the tool calls that were approved meanwhile. */
void frames_tell_approved(struct exec_frames *f);

/* tools.c: tool calls. The caller holds the session's lock, except for tools_begin() and
 * tools_end(). */
void tools_begin(struct session *s, const struct exec_spec *spec);
void tools_end(struct session *s);
/* Handles a tool_call frame of `bytes` bytes. Records the call (*ret_is_asked), or queues a
 * refusal on the channel. -EBADMSG when the frame is invalid. */
int tools_call(struct session *s, json_t *frame, size_t bytes, bool *ret_is_asked);
/* Sends answers, and refusals of calls past their deadline, to the interpreter. */
int tools_pass(struct session *s);
/* Whether tools_pass() would send something now. */
bool tools_have_news(const struct session *s);
/* Ends the wait of a call whose approval was decided, and returns its frame for the caller of
 * the exec, who owns it; NULL when there is none. A denial is queued for the interpreter. */
json_t *tools_next_approved(struct session *s);
/* When the exec stopped because calls wait for approvals, by clock_ms(); 0: none does. */
uint64_t tools_paused_ms(const struct session *s);
/* The earliest deadline of an open call, by clock_ms(); UINT64_MAX without one. */
uint64_t tools_deadline_ms(const struct session *s);

/* preview.c: runs the rest of the code in a copy, for the reviewer of a waiting call. */
enum { PREVIEW_OUTPUT = 1024 }; /* bytes of stdout, and of stderr */
struct preview_record {
    char call[TOOL_ID_MAX + 1]; /* the waiting call, which fails in the copy */
    json_t *attempts;           /* addresses of connections */
    json_t *effects;            /* calls of tools; all are refused */
    unsigned more;              /* attempts and effects that are not listed */
};
/* Begins one for a call that waits for the reviewer; without one the reviewer hears why. The
 * approval must last until preview_end(), or until preview_is_open() is false. The session's
 * lock is held. */
void preview_begin(struct session *s, const char *call, struct approval *approval);
bool preview_is_open(const struct session *s);
/* The interpreter owes a frame `fork`; nothing else may be sent to it until then. */
bool preview_is_asking(const struct session *s);
/* Whether the interpreter still owes an answer although no caller waits for the preview. */
bool preview_is_stuck(const struct session *s);
/* Takes that frame. -EBADMSG when it is not valid, or not its turn. */
int preview_answered(struct session *s, const json_t *frame, bool is_done);
/* Does the next step of the preview. Returns when to call this again. */
uint64_t preview_tend(struct session *s);
/* Ends it, and its copy, in any state. */
void preview_end(struct session *s);
/* The copy's side: fills in a record. */
int preview_resume(struct session *copy, const struct preview_record *record);
void preview_note_call(struct preview_record *record, const char *name, const json_t *input);
int preview_note_attempt(struct preview_record *record, const json_t *frame);

/* place.c: the admission place of an exec. The caller holds the session. place_tend() sends
 * tool answers to the interpreter and gives the place back while the exec waits for them. It
 * returns when to call it next, and moves *deadline_ms by the time the exec waited for its
 * place. */
int place_take(struct session *s, int cancel_fd, struct err *err);
void place_leave(struct session *s);
uint64_t place_tend(struct session *s, bool is_stopping, uint64_t *deadline_ms);
/* Handles a wake-up while an exec waits to begin: 0 to go on waiting. */
int place_look(struct session *s, struct err *err);
bool place_is_returning(const struct session *s);
int place_fd(const struct session *s); /* readable when place_tend() must be called, or -1 */

/* install.c: packages that the code of an exec asks for. Only the holder of the session calls
 * these. install_begin() handles the frame `install`: -EBADMSG when it is invalid. install_fd()
 * is the log, or -1; install_read() reads it, and at its end mounts the packages. The answer is
 * then there for install_pass(). install_end() cancels, and waits for the end of the build. */
int install_begin(struct session *s, json_t *frame);
int install_fd(const struct session *s);
ssize_t install_read(struct session *s, char *to, size_t size);
bool install_is_open(const struct session *s); /* no answer was sent yet */
bool install_has_news(const struct session *s);
int install_pass(struct session *s);
void install_cancel(const struct session *s);
void install_end(struct session *s);

enum exec_cause { CAUSE_NONE, CAUSE_WALL, CAUSE_CPU, CAUSE_OUTPUT, CAUSE_CANCEL, CAUSE_END };

struct exec {
    struct session *s;
    const struct exec_spec *spec;
    const struct exec_watch *watch;
    struct exec_result *result;
    struct exec_frames frames;
    enum exec_cause cause; /* why the code is being stopped */
    bool is_lost;          /* the interpreter is gone or was given up */
    bool is_failure;       /* Hermes failed, not the code */
    bool out_ended, err_ended, channel_ended;
    bool is_starved; /* there was no memory for a frame: read it later */
    uint64_t streamed[2];
    struct session_changes changes;
    bool has_changes;            /* the result has the changed files */
    struct network_tally *tally; /* NULL: no network */
    uint64_t waited_ms;          /* for approvals of connections, so far */
    uint64_t asked_ms;           /* for approvals of tool calls, so far */
    uint64_t asked_until_ms;     /* asked_ms counts up to this time */
    uint64_t installed_ms;       /* for packages that the code asked for, so far */
    uint64_t install_from_ms; /* installed_ms counts up to this time; 0: no installation runs */
    struct spill spills[2];   /* stdout, stderr */
    uint64_t begin_ns;
    uint64_t deadline_ms;
    uint64_t grace_ms;     /* end of the grace period, once stopped */
    uint64_t cpu_check_ms; /* UINT64_MAX: no limit, or the question is already sent */
    unsigned usages;       /* answers to COMMAND_USAGE that have not come yet */
    bool is_interrupting;  /* EVENT_INTERRUPTED has not come yet */
    bool was_interrupted;  /* at least one SIGINT was sent */
    bool is_repeated;      /* the second SIGINT was sent */
    bool has_base;
    uint64_t base_cpu_ns;
    struct spawn_event usage; /* the latest answer */
    char chunk[EXEC_CHUNK];
};

/* stop.c: when an exec is stopped, and how. `hit` and `status` are those of the result. */
extern const struct exec_cause_row {
    enum run_status status;
    unsigned hit;
    const char *reason; /* why the session died, if this exec ended it */
    const char *message;
} exec_causes[];

/* Stops the code. Only the first cause counts. */
void exec_stop(struct exec *e, enum exec_cause cause);
void exec_interrupt(struct exec *e);

/* Ends the interpreter. Outstanding answers of the spawner will not come any more. */
void exec_end_interpreter(struct exec *e);

/* Asks the spawner for the usage, and takes its answer. */
void exec_ask_usage(struct exec *e, bool is_last);
void exec_on_usage(struct exec *e, const struct spawn_event *event);
uint64_t exec_used_cpu_ns(const struct exec *e); /* since the exec began */

/* Acts on deadlines that have passed. Returns the time of the next one. */
uint64_t exec_check_deadlines(struct exec *e);

/* report.c: fills in the result of an exec that has ended. */
void exec_report(struct exec *e);

/* Takes `files_changed` before the report, from a box that is about to end. */
void exec_take_changes(struct exec *e);

/* Passes on the network attempts of the code since the last call. */
void exec_tell_attempts(struct exec *e);
