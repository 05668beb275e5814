/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Terminals in a session: an interactive shell beside the interpreter, in the same box. A
 * terminal's output is hostile. Only session_terminal_open() blocks, for a few seconds at most.
 * A terminal belongs to one thread. */

#include "session/session.h"
#include "state/config.h"

enum {
    TERMINAL_ROWS = 30, /* rows and columns when the client names none */
    TERMINAL_COLS = 120,
    TERMINAL_SIDE_MAX = 1000,    /* largest number of rows or columns */
    TERMINAL_CONTROL_MAX = 1024, /* bytes of a control message */
    /* Three pings without an answer (PING_MS, terminal_control.c). */
    TERMINAL_SILENT_MS = 60000,
};

struct terminal_size {
    unsigned rows;
    unsigned cols;
};

struct terminal {
    struct session *s;
    int master;      /* server's end of the pseudo-terminal; non-blocking */
    int socket;      /* readable when the shell has ended */
    bool is_counted; /* in the server's number of terminals */
};

/* Starts a shell on a terminal. ERR_BUSY when the session or the server has as many terminals
 * as allowed, ERR_UNSUPPORTED when the server allows none. */
int session_terminal_open(
    struct session *s, struct terminal_size size, struct terminal **ret, struct err *err);

/* Closes the terminal, which ends the shell. Accepts NULL. */
void session_terminal_close(struct terminal *t);

void terminal_resize(const struct terminal *t, struct terminal_size size);

/* Whether the shell has ended. *ret_exit_code is its status, 128 + signal, or 137 when the
 * whole box was ended. */
bool terminal_has_ended(const struct terminal *t, int *ret_exit_code);

/* How many terminals all sessions may have on a server with this many connections. Each
 * terminal holds a connection, and other requests need some too. */
uint64_t terminals_max(const struct config *config, uint64_t connections);

/* Number of open terminals. */
unsigned terminals_count(struct sessions *all);

/* Parses a control message: {"type": "resize", "rows": N, "cols": N}. */
int terminal_control_parse(
    const char *text, size_t len, struct terminal_size *ret, struct err *err);

/* Checks one side of a requested size. The error names the field `name`. */
int terminal_side(const char *name, int64_t value, unsigned *ret, struct err *err);

/* Detects a dead client. A silent client is pinged. One that stays silent for
 * TERMINAL_SILENT_MS while the server reads from it (`is_listening`) is given up. */
struct terminal_silence {
    uint64_t since_ms;
    uint64_t asked_ms;
};
enum terminal_verdict { TERMINAL_BEAR, TERMINAL_PING, TERMINAL_GIVE_UP };
void terminal_heard(struct terminal_silence *s, uint64_t now_ms);
enum terminal_verdict terminal_judge(
    struct terminal_silence *s, bool is_listening, uint64_t now_ms);
