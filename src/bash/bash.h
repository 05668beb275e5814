/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The bash of a session: a child that is fed code through a pipe and tells the status of each
 * piece, and after it its whole state as text, through another. It has no descriptor of ours:
 * it opens them for a moment through /proc/PID/fd, so neither it nor its children can lose,
 * keep or inherit one. When it ends (exit, exec, set -e, a crash, SIGINT), the next one is
 * given the state.
 */

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"

struct bash {
    const char *program;
    pid_t pid;
    /* Pipes; both ends are ours, bash opens the one it needs by its path. */
    int go_read, go_write;         /* code, NUL */
    int report_read, report_write; /* after each piece of code */
    int exit_read, exit_write;     /* from the EXIT trap */
    /* What bash reads by path. */
    int code_file, save_file, stdin_file;
    char token[33];
    struct buf report, last_words;
    struct buf state; /* what the last one said; empty when there is none */
    bool left_state;  /* by this one's EXIT trap */
    char flags[64];   /* $- then: x and v are off between pieces and put back by us */
};

enum { BASH_STATE_MAX = 8 << 20, BASH_CODE_IN_PIPE = 2048 };

/* Makes pipes and files. Negative errno. */
int bash_init(struct bash *b, const char *program);

/* Starts one, with this program's environment or, when it will be given a state, with none. */
int bash_start(struct bash *b, bool bare);

/* What the next piece reads as stdin; an empty one is /dev/null. */
int bash_set_stdin(struct bash *b, const char *data, size_t len);

/* `prefix` is put before the code, in its first line. */
int bash_send(struct bash *b, const char *prefix, const char *code, size_t len);
int bash_send_state(struct bash *b);

/* Reads what bash reported: how often it came to the start of a round, and the last status. */
int bash_read_report(struct bash *b, int *ret_status);

/* Reads what its EXIT trap says. True once that was a whole state. */
bool bash_read_last_words(struct bash *b);
