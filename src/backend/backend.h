/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Backends: places where the far shell (docs/internals/far-shell.md) is started. One row of
 * functions for each kind. Everything runs in a process that serves one session and nothing
 * else; what comes back from a place is a stranger's word. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "backend/wire.h"
#include "base/buf.h"
#include "base/strv.h"
#include "proto/place.h"

enum { BACKEND_SAID = 1024 };

/* A program in a place: its stdin and stdout, what it said on stderr, and its process here. */
struct backend_stream {
    int in_fd; /* we read its stdout here */
    int out_fd;
    int err_fd;
    pid_t pid;      /* -1: none */
    int pidfd;      /* of a program that another process has started; -1: none */
    bool is_framed; /* its output comes in frames of the engine (wire.h) */
    int said_fd;    /* stderr of these frames goes here, to err_fd */
    struct wire_frames frames;
    char said[BACKEND_SAID + 1]; /* the end of what came on stderr: backend_listen() */
    size_t said_len;
};

struct backend {
    const struct place_row *row;
    uint32_t number;         /* of the row */
    const char *control_dir; /* a private directory for sockets of ssh */
    const char *shell;       /* the far shell's bytes */
    size_t shell_len;
    const char *hash;     /* of these bytes, in hex */
    const char *instance; /* of this installation */
    int starter_fd;       /* for rows that permit sudo (places/starter.c) */
    int watch_fd;         /* the session's socket: opening is given up when it closes */
    struct place_head request;
    uint32_t in_force;        /* limits of the request, as bits: set by open() */
    enum place_limit refused; /* the limit that a PLACE_LIMIT is about */
    void *own;                /* data of this kind of backend */
    bool takes_stream;        /* the far shell comes by the stream, although there is put() */
    bool was_joined;          /* a far shell has answered */
    char id[33];              /* of this session, in hex */
    char nonce[33];           /* begins the answer of a connection */
    char words[PLACE_SAYS];   /* what went wrong, for people */
};

/* Functions that a kind does not have are NULL. */
struct backend_ops {
    /* Finds, resumes or makes the place and says which limits are in force. `is_again`: after a
     * cut connection; nothing is made then, a place that is gone is PLACE_LOST. */
    enum place_error (*open)(struct backend *b, bool is_again);
    /* Starts `sh -c SCRIPT` in the place, with a two-way stream. The script has no single
     * quotes. */
    enum place_error (*stream)(
        struct backend *b, const char *script, struct backend_stream *ret);
    /* Classifies a failure to start the far shell, by the last words of the place's client. */
    enum place_error (*judge)(struct backend *b, const char *said);
    /* Sets b->words to why the stream has ended; false when that is not known. */
    bool (*why)(struct backend *b);
    /* Puts the far shell to backend_shell_path(). Without it the stream takes the bytes. */
    enum place_error (*put)(struct backend *b);
    /* The session has ended, or did not begin: the place is left, stopped or destroyed. */
    void (*close)(struct backend *b);
    /* Is the place there? Makes nothing. */
    enum place_error (*probe)(struct backend *b);
};

extern const struct backend_ops backend_local;
extern const struct backend_ops backend_ssh;
extern const struct backend_ops backend_plugin;
extern const struct backend_ops backend_apptainer;
extern const struct backend_ops backend_docker;
const struct backend_ops *backend_ops_of(uint32_t kind); /* NULL: there is none */

/* Sets b->words, made fit for people, and returns `error`. A stranger's text in them is quoted
 * (place_quote). */
enum place_error backend_fail(struct backend *b, enum place_error error, const char *format,
    ...) __attribute__((format(printf, 3, 4)));

/* Lowers the limits of a request to the limits of the row. The server is not trusted with
 * that. */
void backend_take_request(struct backend *b, const struct place_head *head);

/* Where put() puts the far shell. */
void backend_shell_path(const struct backend *b, char *ret, size_t size);

/* lock.c: hermes-ROW-HASH for a place that is kept, one for each caller; otherwise the
 * session's own. */
void backend_place_name(const struct backend *b, char name[PLACE_TEXT]);
/* The hash of the settings that a place is made from. A place with another one is not used. */
enum { BACKEND_HASH = 65 };
void backend_config_hash(const struct backend *b, char hex[BACKEND_HASH]);
/* One lock for all sessions that use a place; *ret_fd holds it, also while its
 * connection is cut. 0, -ETIMEDOUT while the place is being closed, or -ECANCELED. */
int backend_lock(const struct backend *b, uint64_t until_ms, int *ret_fd);
bool backend_is_last(int lock_fd); /* whether this is the last of these sessions; no other
                                    * can take the lock from now on */

/* stream.c: starts a program of this machine with pipes and an environment of its own. */
struct backend_program {
    char *const *argv;
    const char *dir;        /* NULL: the home directory */
    const struct strv *env; /* NAME=VALUE, added to the user's own; or NULL */
    bool is_bound;          /* it ends with the process that starts it */
};
int backend_start(const struct backend_program *program, struct backend_stream *ret);
int backend_spawn(char *const argv[], const char *dir, struct backend_stream *ret);
/* In a child: becomes the program, with these as its standard files. */
_Noreturn void backend_become(const struct backend_program *program, int in, int out, int err);
/* Asks the starter to start `sh -c SCRIPT`: a packet with the text, three standard files and a
 * socket, on which one packet with a pidfd comes back. */
enum { BACKEND_ASK_REPLY = 3, BACKEND_ASK_FDS, BACKEND_ASK_MAX = 16 << 10 /* bytes */ };
int backend_ask(const struct backend *b, const char *script, struct backend_stream *ret);
/* The same with a function instead of a program. The function does not return. */
typedef void backend_run(const void *context, int in, int out, int err);
int backend_fork(backend_run *run, const void *context, struct backend_stream *ret);
enum place_error backend_spawned(struct backend *b, int r); /* reports a failed start */
void backend_stream_init(struct backend_stream *s);         /* as closed */
/* Like read(2), from the program's stdout. */
ssize_t backend_read(struct backend_stream *s, void *data, size_t size);
void backend_stream_close(struct backend_stream *s);
/* Reads what there is on its stderr. */
void backend_listen(struct backend_stream *s);
/* After the end of its stdout: waits for its last words and returns their last line, or "". */
const char *backend_last_line(struct backend_stream *s);
/* Writes to the program until `until_ms`: a place that does not read must not block the relay.
 * -EPIPE when the program is gone, -ECANCELED when the session is, -ETIMEDOUT. */
int backend_send(const struct backend *b, const struct backend_stream *s, const void *data,
    size_t len, uint64_t until_ms);

/* open.c: starts the far shell, or joins it again (`is_again`), and takes the first line.
 * *ret_received: how many bytes it has of us. */
enum place_error backend_open(
    struct backend *b, bool is_again, struct backend_stream *ret, uint64_t *ret_received);

/* When the session has ended. */
void backend_close(struct backend *b);

/* relay.c: joins the descriptors of a session (PLACE_*, all taken) to the place until one side
 * ends. */
void backend_relay(struct backend *b, int fds[PLACE_FDS]);

/* Answers whether the place is there: EVENT_STARTED or EVENT_FAILED, and the end. */
void backend_answer_probe(struct backend *b, int fds[PLACE_FDS]);
