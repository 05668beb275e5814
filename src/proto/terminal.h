/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A terminal in a session: what the server and two processes in the box (terminal.c) say to
 * each other over a unix stream socket. Box init forks a watcher on COMMAND_TERMINAL, and that
 * the process that becomes the shell, which opens the terminal while it still is code of ours.
 *
 *   TERMINAL_MASTER, with the terminal's other end; the server sends TERMINAL_GO when it has
 *   set it up, and the shell is executed, or
 *   TERMINAL_FAILED with a negative errno;
 *   TERMINAL_ENDED with the shell's wait status.
 *
 * When the server closes the socket, a shell that its hangup has not ended is killed. */

#include <stdint.h>

enum terminal_kind { TERMINAL_MASTER = 1, TERMINAL_FAILED, TERMINAL_ENDED };

struct terminal_word {
    uint32_t kind;
    int32_t value;
};

enum {
    TERMINAL_PTYS = 8, /* of one box, those that its code opens included */
    TERMINAL_GO = 'g',
};
