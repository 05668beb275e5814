/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Terminals in a session: an interactive shell beside its interpreter, in the same box. What
 * comes out of one is a stranger's; nothing here blocks but session_terminal_open(), for a few
 * seconds at most. A terminal belongs to one thread. */

#include "session/session.h"
#include "state/config.h"

enum {
    TERMINAL_ROWS = 30, /* when nobody says */
    TERMINAL_COLS = 120,
    TERMINAL_SIDE_MAX = 1000,
    TERMINAL_CONTROL_MAX = 1024, /* bytes of a message that is not input */
    TERMINAL_SILENT_MS = 60000,
};

struct terminal_size {
    unsigned rows;
    unsigned cols;
};

struct terminal {
    struct session *s;
    int master; /* the terminal's other end; does not block */
    int socket; /* readable when the shell has ended */
    bool is_counted;
};

/* Starts a shell on a terminal. ERR_BUSY when there are enough of them, ERR_UNSUPPORTED when
 * there are none here. */
int session_terminal_open(struct session *s, struct terminal_size size, struct terminal **ret,
    unsigned *ret_retry_s, struct err *err);

/* Hangs up, and ends the shell. Accepts NULL. */
void session_terminal_close(struct terminal *t);

void terminal_resize(const struct terminal *t, struct terminal_size size);

/* Whether the shell has ended, and how: its status, 128 and the signal, 137 when all of the box
 * was ended. */
bool terminal_has_ended(const struct terminal *t, int *ret_exit_code);

/* How many there may be, in all sessions, of so many connections: others need those too. */
uint64_t terminals_max(const struct config *config, uint64_t connections);

/* How many there are. */
unsigned terminals_count(struct sessions *all);

/* A message about the terminal: {"type": "resize", "rows": N, "cols": N}. */
int terminal_control_parse(
    const char *text, size_t len, struct terminal_size *ret, struct err *err);

/* One side of a size that is asked for; the error has the name. */
int terminal_side(const char *name, int64_t value, unsigned *ret, struct err *err);

/* A client that says nothing is pinged every now and then; one that says nothing for
 * TERMINAL_SILENT_MS, while it is listened to, is given up. */
struct terminal_silence {
    uint64_t since_ms;
    uint64_t asked_ms;
};
enum terminal_verdict { TERMINAL_BEAR, TERMINAL_PING, TERMINAL_GIVE_UP };
void terminal_heard(struct terminal_silence *s, uint64_t now_ms);
enum terminal_verdict terminal_judge(
    struct terminal_silence *s, bool is_listening, uint64_t now_ms);
