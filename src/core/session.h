/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Sessions: live interpreters and shells, each in a box of its own that lives as long as the
 * session. A session belongs to the key that made it; others do not learn that it exists. Any
 * thread may call any function; one exec at a time goes on in a session. */

#include "base/answer.h"
#include "base/err.h"
#include "core/capture.h"
#include "core/engine.h"
#include "core/limits.h"
#include "core/run.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct service;
struct sessions;
struct session;

enum { SESSION_NAME_MAX = 64, CHECKPOINT_NAME_MAX = 64 };

enum session_state {
    SESSION_STARTING,
    SESSION_IDLE,
    SESSION_BUSY,
    SESSION_DEAD,    /* its interpreter ended or had to be ended; reset gives it another one */
    SESSION_EXPIRED, /* idle or alive for too long; nothing is left of it */
    SESSION_STATES
};

struct session_spec {
    const struct runtime *runtime;
    struct strv env; /* taken by session_create() */
    struct run_limits
        limits;              /* wall_ms, cpu_ms and output_kb of an exec, the rest of the box */
    uint64_t idle_timeout_s; /* 0: as configured */
    uint64_t max_lifetime_s;
    char name[SESSION_NAME_MAX + 1];
};

struct sessions *sessions_new(struct service *service);
void sessions_free(struct sessions *all);

/* About once a second: notices death, lets sessions expire, forgets dead ones. */
void sessions_tick(struct sessions *all);

/* Ends at most so many idle sessions that hold what a waiting run of another key has a right
 * to. Each may take two seconds. */
void sessions_make_room(struct sessions *all, unsigned most);

/* Execs under way are ended without grace from now on. */
void sessions_stop(struct sessions *all);

/* How many have a box. */
unsigned sessions_count(struct sessions *all);

/* Starts a session and waits until its interpreter is ready. ERR_BUSY with *ret_retry_s when a
 * quota is used up. The caller owns a reference. */
int session_create(struct sessions *all, struct session_spec *spec, int owner, int cancel_fd,
    struct session **ret, unsigned *ret_retry_s, struct err *err);

/* The session of this owner, or NULL. The caller owns a reference. */
struct session *session_find(struct sessions *all, const char *id, int owner);
struct session *session_ref(struct session *s);
void session_unref(struct session *s); /* accepts NULL */

const char *session_id(const struct session *s);
json_t *session_json(struct session *s);
json_t *sessions_json(struct sessions *all, int owner);

/* Ends it for good, whatever it does, and waits until its box is gone. */
void session_delete(struct session *s);

/* SIGINT to what it runs. ERR_CONFLICT when it runs nothing. */
int session_interrupt(struct session *s, struct err *err);

/* A new interpreter in the same box: the files stay, unless the box was lost. Also for dead
 * sessions. *ret_files_kept tells. */
int session_reset(struct session *s, int cancel_fd, bool *ret_files_kept, unsigned *ret_retry_s,
    struct err *err);

/* Copies of an idle session: fills in `ret` with `count` new ones, of which the caller owns a
 * reference each; all or none. ERR_CONFLICT tells what stands in the way. Where the memory of a
 * language cannot be copied they are fresh ones, with copies of the files below /box. */
enum { SESSION_FORKS_MAX = 30 };
struct fork_result {
    struct session *copies[SESSION_FORKS_MAX];
    bool has_memory;
    bool is_whole; /* no file was left out */
};
int session_fork(struct session *s, unsigned count, int cancel_fd, struct fork_result *ret,
    unsigned *ret_retry_s, struct err *err);

/* Checkpoints: copies that stand still under a name until they are deleted, or the session is.
 * With name "" one is chosen. Rolling back makes the session go on from a copy of one, whatever
 * became of it since. */
int session_checkpoint(struct session *s, const char *name, int cancel_fd, json_t **ret,
    unsigned *ret_retry_s, struct err *err);
json_t *session_checkpoints(struct session *s);
int session_checkpoint_delete(struct session *s, const char *name, struct err *err);
int session_rollback(
    struct session *s, const char *name, int cancel_fd, unsigned *ret_retry_s, struct err *err);

/* Background jobs of a shell, as its kernel lists them. With `kill_id` (or NULL) that one is
 * ended first; ERR_NOT_FOUND when there is none. The caller owns *ret. */
int session_jobs(struct session *s, const char *kill_id, json_t **ret, struct err *err);

struct exec_spec {
    char *code;
    size_t code_len;
    char *stdin_data;
    size_t stdin_size;
    uint64_t timeout_ms; /* 0: the session's wall_ms */
    bool wait;           /* for an exec that is under way, instead of ERR_CONFLICT */
    json_t *tools;       /* checked list of {name, ...}, or NULL */
    unsigned max_tool_calls;
    uint64_t tool_timeout_ms;
};
void exec_spec_done(struct exec_spec *spec);

/* How the caller follows an exec. Called on the thread of session_exec(). */
struct exec_watch {
    void *context;
    void (*output)(void *context, enum run_stream stream, const char *data, size_t len);
    void (*event)(void *context, const char *name, const json_t *value);
    int cancel_fd; /* when it becomes readable the code is interrupted; -1 for none */
};

struct exec_result {
    enum run_status status;
    bool exited; /* exit_code is valid */
    int exit_code;
    char message[256];
    struct capture out, err;
    const char *out_file; /* in the box, with all of it; or NULL */
    const char *err_file;
    json_t *result; /* or NULL */
    json_t *displays;
    bool displays_cut;
    json_t *error;         /* or NULL */
    json_t *files_changed; /* names, or NULL when nobody knows */
    bool files_cut;        /* and more */
    int64_t execution_count;
    char *cwd;
    bool state_lost;
    unsigned limits_hit;
    struct run_usage usage;
    unsigned tool_calls;
    struct purse purse; /* counts what is kept; so a result must not move */
};
void exec_result_done(struct exec_result *result);

/* The answer; with an error of Hermes' own (or NULL) that stands in it. The caller is its user.
 * NULL when the ledger refuses or there is no memory. */
struct answer *exec_result_answer(const struct exec_result *result, const json_t *error);

/* Takes the session for one exec, waiting for its turn if the spec says so; ERR_CONFLICT when
 * it is busy, dead or expired, ERR_BUSY when a quota is used up. session_exec() must follow and
 * gives it back. */
int session_begin(struct session *s, const struct exec_spec *spec, int cancel_fd,
    unsigned *ret_retry_s, struct err *err);

/* Returns 0 with the result (a failing program is one), or negative errno when Hermes failed;
 * the session is dead then. */
int session_exec(struct session *s, const struct exec_spec *spec,
    const struct exec_watch *watch, struct exec_result *result, struct err *err);

/* Gives back a session that was begun for nothing. */
void session_abandon(struct session *s);

/* Whether its interpreter is gone for good, for the answer to a caller who asks it for work. */
bool session_is_lost(struct session *s);

/* It is in use: its idle time begins anew. */
void session_touch(struct session *s);

/* The answer to a tool_call event: takes a reference to the object {id, output|error}.
 * ERR_NOT_FOUND when nobody waits for it. */
int session_answer_tool(struct session *s, json_t *answer, size_t weight, struct err *err);
