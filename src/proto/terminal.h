/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A terminal in a session: the messages between the server and two processes in the box
 * (box/terminal.c) over a unix stream socket. On COMMAND_TERMINAL box init forks a watcher. The
 * watcher forks the process that becomes the shell. That process opens the terminal before it
 * executes the shell.
 *
 *   TERMINAL_MASTER  with the master end of the terminal. The server sets the terminal up and
 *                    sends TERMINAL_GO; then the shell is executed
 *   TERMINAL_FAILED  with a negative errno
 *   TERMINAL_ENDED   with the shell's wait status
 *
 * On a backend (place.h) the master end is a stream socket, there is no TERMINAL_GO, and the
 * server says the size of the window:
 *
 *   TERMINAL_SIZE    rows << 16 | columns. The first one starts the shell
 *
 * When the server closes the socket, the terminal hangs up. A shell that survives the hangup is
 * killed. */

#include <stdint.h>

enum terminal_kind { TERMINAL_MASTER = 1, TERMINAL_FAILED, TERMINAL_ENDED, TERMINAL_SIZE };

struct terminal_word {
    uint32_t kind;
    int32_t value;
};

enum {
    TERMINAL_PTYS = 8, /* terminals of one box, including those that user code opens */
    TERMINAL_GO = 'g',
};
