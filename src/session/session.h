/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Sessions: live interpreters and shells, each in a box of its own. A session belongs to the
 * key that made it; other keys cannot see that it exists. Any thread may call any function. A
 * session runs one exec at a time. */

#include "base/answer.h"
#include "base/err.h"
#include "lang/limits.h"
#include "proto/place.h"
#include "run/engine.h"
#include "run/run.h"
#include "session/exec/capture.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct admit_need;
struct admit_ticket;
struct state;
struct sessions;
struct session;
struct preview_record;

enum { SESSION_NAME_MAX = 64, CHECKPOINT_NAME_MAX = 64, SESSION_MOUNTS_MAX = 8 };

enum session_state {
    SESSION_STARTING,
    SESSION_IDLE,
    SESSION_BUSY,
    SESSION_DEAD,    /* its interpreter ended or was ended; session_reset() starts another */
    SESSION_EXPIRED, /* past its idle time or lifetime, or evicted; nothing is left of it */
    SESSION_STATES
};

struct session_spec {
    const struct runtime *runtime;
    struct strv env; /* session_create() takes it */
    /* wall_ms, cpu_ms and output_kb are of one exec; the others are of the box. */
    struct run_limits limits;
    struct run_mount mounts[SESSION_MOUNTS_MAX];
    size_t mount_count;
    struct network_policy *network; /* NULL: none; session_create() takes it */
    struct strv secrets;            /* names */
    char *image_name;               /* the image that was asked for, or NULL */
    bool wants_no_image;            /* not even the default image */
    struct run_image *image;        /* the same, found; session_create() takes it */
    uint64_t idle_timeout_s;        /* 0: the configured value */
    uint64_t max_lifetime_s;
    char name[SESSION_NAME_MAX + 1];
    char backend[PLACE_NAME + 1];  /* as it was asked for; "": a box */
    bool is_best_effort;           /* ignore limits that the backend cannot enforce */
    const struct place_row *place; /* the backend, found by session_create(); NULL: a box */
    uint32_t place_number;
    struct place_limits place_limits;
};

void session_spec_done(struct session_spec *spec);

struct sessions *sessions_new(struct state *state);

/* Builds packages that the code of a session asks for, upon the image that the session has. */
struct session_build {
    const json_t *packages; /* as they came from the code */
    void (*log)(void *context, const char *data, size_t len);
    void *context;
    int cancel_fd;            /* an eventfd */
    struct run_image *layers; /* result: to mount; NULL: the session has all packages */
    json_t *installed;        /* result: a list of {name, version} */
};
typedef int session_builder(
    struct state *state, struct session *s, struct session_build *build, struct err *err);
void sessions_set_builder(struct sessions *all, session_builder *build);

void sessions_free(struct sessions *all);

/* Every 500 ms (http/connection.c): notices dead interpreters, ends sessions past their idle
 * time or lifetime, and removes old dead ones from the list. */
void sessions_tick(struct sessions *all);

/* Ends up to `most` idle sessions that hold resources which a waiting run of another key is
 * entitled to. Each may take two seconds. */
void sessions_make_room(struct sessions *all, unsigned most);

/* Calls admit_begin(). When the run has to wait, calls sessions_make_room(). */
int session_admit(struct state *state, int owner, const struct admit_need *need,
    struct admit_ticket *ret, struct err *err);

/* From now on, running execs are ended without a grace period. */
void sessions_stop(struct sessions *all);

/* The box of a session, as the status shows it. */
struct session_box_view {
    const char *id;
    const char *kind;
    const char *language;
    int owner; /* index of the key, -1 for none */
    const char *state;
    int64_t since_s;  /* wall clock */
    bool is_measured; /* the next two are known */
    uint64_t cpu_ns;
    uint64_t memory_bytes;
};

/* Calls `see` for each session that has a box, the newest first; checkpoints are left out. The
 * usage is what the spawner said last. */
void sessions_each_box(struct sessions *all,
    void (*see)(void *context, const struct session_box_view *box), void *context);

/* Number of sessions that have a box. */
unsigned sessions_count(struct sessions *all);

/* Starts a session and waits until its interpreter is ready. ERR_BUSY when a
 * quota is used up. The caller owns a reference. */
int session_create(struct sessions *all, struct session_spec *spec, int owner, int cancel_fd,
    struct session **ret, struct err *err);

/* Finds a session of this owner, or NULL. The caller owns a reference. */
struct session *session_find(struct sessions *all, const char *id, int owner);

/* Sets the error for a session that is not there, or not for this caller. */
int session_not_found(const char *id, struct err *err);
struct session *session_ref(struct session *s);
void session_unref(struct session *s); /* accepts NULL */

const char *session_id(const struct session *s);
const char *session_language(const struct session *s);
json_t *session_json(struct session *s);
json_t *sessions_json(struct sessions *all, int owner);

/* The backends that this caller may use: {"backends": [...]}. */
json_t *session_backends_json(const struct state *state, int owner);
/* Whether there is a backend of this name and its place answers. */
bool session_backend_is_there(const struct state *state, const char *name);

/* Ends the session in any state and waits until its box is gone. The caller has a reference. */
void session_delete(struct session *s);

/* Changes the network policy of the session and its copies, also while it runs code. Takes the
 * policy (NULL: none), also after an error. */
int session_set_network(struct session *s, struct network_policy *policy, struct err *err);

/* The target of an installation of packages: the language, the key, and the id of the image
 * that the session has now. False without an image. */
const struct runtime *session_runtime(const struct session *s);
int session_owner(const struct session *s);
bool session_image(struct session *s, char *to, size_t size);

/* ERR_NOT_FOUND or ERR_CONFLICT when the session has no interpreter. */
int session_check(struct session *s, struct err *err);

/* While packages are installed: the session does not count as idle, and its end writes to fd,
 * an eventfd. -1 ends that. One installation at a time is followed. */
void session_install_follow(struct session *s, int fd);

/* Gives a live session the layers of another image, which it takes, also after an error. Waits
 * until the session is idle. -EAGAIN without err when the session no longer has the image with
 * the id `below` ("": none). */
int session_add_packages(struct session *s, const char *below, struct run_image *image,
    int cancel_fd, struct err *err);

/* Interrupts the running exec with SIGINT. ERR_CONFLICT when no exec is running. */
int session_interrupt(struct session *s, struct err *err);

/* Starts a new interpreter, also in a dead session. *ret_files_kept says whether the box, and
 * with it the files, is the same; it is a new one when the old box was lost. */
int session_reset(struct session *s, int cancel_fd, bool *ret_files_kept, struct err *err);

/* Makes `count` copies of an idle session, all or none. The caller owns a reference to each.
 * ERR_CONFLICT explains why a copy is not possible now. When the memory of a language's
 * sessions cannot be copied, the copies are new sessions with copies of the files below /box.
 */
enum { SESSION_FORKS_MAX = 30 };
struct fork_result {
    struct session *copies[SESSION_FORKS_MAX];
    bool has_memory;
    bool is_whole; /* no file was left out */
};
int session_fork(
    struct session *s, unsigned count, int cancel_fd, struct fork_result *ret, struct err *err);

/* Checkpoints: paused copies with a name. They last until they or their session are deleted.
 * With name "" a number is chosen. session_rollback() replaces the session's state with a copy
 * of a checkpoint, also when the session is dead. */
int session_checkpoint(
    struct session *s, const char *name, int cancel_fd, json_t **ret, struct err *err);
json_t *session_checkpoints(struct session *s);
int session_checkpoint_delete(struct session *s, const char *name, struct err *err);
int session_rollback(struct session *s, const char *name, int cancel_fd, struct err *err);

/* Lists the background jobs of a shell session. Ends the job `kill_id` (or NULL) first;
 * ERR_NOT_FOUND when there is none. The caller owns *ret. */
int session_jobs(struct session *s, const char *kill_id, json_t **ret, struct err *err);

/* Lists the variables of an idle session: {"variables": [{name, type, size, preview}], "more"}.
 * `more` is the number of those left out. No code of the user runs. The caller owns *ret. */
int session_variables(struct session *s, json_t **ret, struct err *err);

struct exec_spec {
    char *code;
    size_t code_len;
    char *stdin_data;
    size_t stdin_size;
    uint64_t timeout_ms; /* 0: wall_ms of the session */
    bool wait;           /* wait for the running exec instead of ERR_CONFLICT */
    json_t *tools;       /* checked list of {name, ...}, or NULL */
    bool is_catalog; /* its one tool calls the tools of a catalog: the input names one of them
                        (`path`) */
    unsigned max_tool_calls;
    uint64_t tool_timeout_ms;
    struct preview_record *preview; /* set by preview.c only: the rest of an exec, in a copy */
};
void exec_spec_done(struct exec_spec *spec);

/* How the caller follows an exec. The callbacks run on the thread of session_exec(). */
struct exec_watch {
    void *context;
    void (*output)(void *context, enum run_stream stream, const char *data, size_t len);
    void (*event)(void *context, const char *name, const json_t *value);
    int cancel_fd; /* the code is interrupted when this is readable; -1 for none */
};

struct exec_result {
    enum run_status status;
    bool exited; /* exit_code is valid */
    int exit_code;
    char message[256];
    struct capture out, err;
    const char *out_file; /* file in the box with the whole output, or NULL */
    const char *err_file;
    json_t *result; /* or NULL */
    json_t *displays;
    bool displays_cut;
    json_t *error;         /* or NULL */
    json_t *backend;       /* where it ran */
    json_t *approvals;     /* approvals that were asked before it began, or NULL */
    json_t *files_changed; /* list of names, or NULL when they are not known */
    bool files_cut;        /* the list is incomplete */
    int64_t execution_count;
    char *cwd;
    bool state_lost;
    unsigned limits_hit;
    struct run_usage usage;
    struct network_report *network; /* attempts to reach the network during it; NULL: no
                                     * network */
    unsigned tool_calls;
    struct purse purse; /* counts the memory of this result; a result must not move */
};
void exec_result_done(struct exec_result *result);

/* The result as JSON. `failure` (or NULL) is an error of Hermes itself and replaces the code's
 * own. The caller is a user of the answer. NULL when the ledger refuses or there is no memory.
 */
struct answer *exec_result_answer(struct exec_result *result, const struct err *failure);

/* Takes the session for one exec, and with spec->wait waits for its turn. ERR_CONFLICT when it
 * is busy, dead or expired, ERR_BUSY when a quota is used up. After 0 the caller must call
 * session_exec() or session_abandon(); both give the session back. */
int session_begin(
    struct session *s, const struct exec_spec *spec, int cancel_fd, struct err *err);

/* Returns 0 with the result, also when the code failed, or negative errno when Hermes failed.
 * exec_result_done() frees the result in both cases. */
int session_exec(struct session *s, const struct exec_spec *spec,
    const struct exec_watch *watch, struct exec_result *result, struct err *err);

/* Gives back a session after session_begin() without running anything. */
void session_abandon(struct session *s);

/* Whether the session is dead or expired, so that a new attempt is pointless. */
bool session_is_lost(struct session *s);

/* Restarts the idle time. */
void session_touch(struct session *s);

/* Passes on a caller's answer to a tool_call event: takes a reference to the object {id,
 * output|error}, which counts as `weight` bytes. ERR_NOT_FOUND when no call with this id waits.
 */
int session_answer_tool(struct session *s, json_t *answer, size_t weight, struct err *err);
